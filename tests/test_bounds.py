"""Theorems against runs: every bound at every round, the promised rates, and what papers print that does not hold."""

import dataclasses
import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts
from fedloom.algorithm import Server
from fedloom.algorithms.feddyn import FedDyn, FedDynOneGD
from fedloom.diagnosis.slack import MOST, converging, quadratic_constants, slack
from fedloom.hyperparameters import frozen
from fedloom.theory import THEOREMS, Measured, Setting
from fedloom.theory.linear_speedup import as_printed
from tests.bound_problems import (
    Problem,
    convex,
    indefinite,
    points,
    quadratic_problem,
    robust,
    shared_optimum,
    shifted,
    strongly_convex,
)

K = 5


def exact(steps):
    return fl.Exact()


def nearly_exact(steps):
    """To rounding, for FedDyn: alpha is 30 times the curvature of F_k."""
    return fl.GD(lr=1 / steps["algorithm.alpha"], steps=20)


def full_gradients(steps):
    return fl.GD(lr=steps["solver.lr"], steps=K)


def noisy_gradients(steps):
    return fl.SGD(lr=steps["solver.lr"], steps=K, batch_size=1)


def noisy(seed=0):
    return shifted(seed, noise=1.0)


def saddles(seed=0):
    """A shared optimum, with F_k that are saddles there."""
    return shared_optimum(seed, rise=0.8)


def many(seed=0):
    return shared_optimum(seed, m=20)


@dataclasses.dataclass(frozen=True)
class Case:
    """A theorem, where it is tested, and how close runs come to its bound at least."""

    theorem: str
    problem: object
    solver: object
    close: float
    cohort: object = None
    replacement: bool = False
    rounds: int = 40
    tau: int | None = None

    def __str__(self):
        part = "" if self.cohort is None else f"-{self.cohort}"
        return f"{self.theorem}-{self.problem.__name__}{part}" + ("" if self.tau is None else f"-tau={self.tau}")

    @property
    def setting(self):
        steps = None if self.solver in (exact, nearly_exact) else K
        if self.tau is not None:
            return Setting(cohort=1, staleness=self.tau, local_steps=steps)
        size = None if self.cohort is None else self.cohort.m
        return Setting(cohort=size, replacement=self.replacement, local_steps=steps)


SOME, TWICE = cohorts.uniform(3), cohorts.with_replacement(3)
CASES = [
    Case("feddyn-2", convex, exact, 3e-3),
    Case("feddyn-2", convex, exact, 3e-3, SOME),
    Case("feddyn-3", strongly_convex, exact, 2e-4),
    Case("feddyn-3", strongly_convex, exact, 2e-4, SOME),
    Case("feddyn-4", indefinite, exact, 0.05),
    Case("feddyn-4", indefinite, exact, 0.03, SOME),
    Case("feddyn-4", robust, nearly_exact, 1e-3),
    Case("feddyn-5-convex", convex, exact, 0.03),
    Case("feddyn-5-convex", convex, exact, 0.02, SOME),
    Case("feddyn-5-strongly-convex", strongly_convex, exact, 0.04),
    Case("feddyn-5-strongly-convex", strongly_convex, exact, 0.04, SOME),
    Case("feddyn-5-nonconvex", indefinite, exact, 0.03),
    Case("feddyn-5-nonconvex", indefinite, exact, 0.02, SOME),
    Case("fedavg-1", noisy, noisy_gradients, 0.1),
    Case("fedavg-1", robust, full_gradients, 0.01),
    Case("fedavg-2-without-replacement", noisy, noisy_gradients, 0.015, SOME),
    Case("fedavg-2-with-replacement", noisy, noisy_gradients, 0.01, TWICE, True),
    Case("fedavg-2-without-replacement", robust, full_gradients, 2e-3, SOME),
    Case("feddr-3.1", indefinite, exact, 5e-3),
    Case("feddr-3.1", indefinite, exact, 5e-4, SOME),
    Case("feddr-corollary-3.1", strongly_convex, exact, 5e-3),
    Case("asyncfeddr-4.1", indefinite, exact, 5e-5, rounds=60, tau=0),
    Case("asyncfeddr-4.1", indefinite, exact, 3e-5, rounds=60, tau=5),
    Case("fedadagrad-1", robust, full_gradients, 3e-4),
    Case("fedadagrad-1", robust, full_gradients, 3e-4, SOME),
    Case("fedadam-2", robust, full_gradients, 2e-3),
    Case("fedadam-2", robust, full_gradients, 2e-3, SOME),
    Case("feddane-3", shared_optimum, exact, 0.3),
    Case("feddane-3", shared_optimum, exact, 0.3, SOME),
    Case("feddane-corollary-4", shared_optimum, exact, 0.3),
    Case("feddane-5", saddles, exact, 0.2),
    Case("feddane-5", saddles, exact, 0.2, SOME),
    Case("feddane-7", shared_optimum, exact, 0.3),
    Case("fedprox-4", shared_optimum, exact, 0.3),
    Case("fedprox-4", many, exact, 0.1, cohorts.by_weight(8), True),
    Case("scaffold-convex", convex, full_gradients, 0.02),
    Case("scaffold-convex", noisy, noisy_gradients, 0.02, SOME),
    Case("scaffold-strongly-convex", strongly_convex, full_gradients, 0.03),
    Case("scaffold-strongly-convex", strongly_convex, full_gradients, 0.03, SOME),
]


def compared(case: Case, seed: int, algorithm=None, seeds: int | None = None):
    """(mean - 3 errors) / bound and (mean + 3 errors) / bound at every round."""
    theorem, problem = THEOREMS[case.theorem], case.problem(seed)
    c, s = problem.constants, case.setting
    steps = theorem.recommended(c, s, case.rounds)
    assert theorem.permits(c, s, steps), (steps, theorem.allowed(c, s))
    assert theorem.applies(c, s) == "holds", theorem.check(c, s)
    random = case.cohort is not None or case.tau is not None or case.problem is noisy
    runs = points(
        theorem,
        problem,
        steps,
        case.solver(steps),
        case.rounds,
        cohort=case.cohort,
        seeds=(8 if random else 1) if seeds is None else seeds,
        algorithm=None if algorithm is None else algorithm(theorem.configured(steps)),
        delays=None if case.tau is None else fl.systems.Delays(tau=case.tau),
    )
    mean, error = theorem.left.curve(runs, problem.value(theorem.left), c, s, steps)
    bounds = np.array([theorem.bound(t, c, s, steps) for t in range(1, case.rounds + 1)])
    assert np.all(np.isfinite(bounds))
    return (mean - 3 * error) / bounds, (mean + 3 * error) / bounds


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bounds_hold_at_every_round_and_are_not_void(case):
    low, high = compared(case, seed=0)
    assert np.all(low <= 1)
    assert np.max(high) >= case.close  # a bound this much smaller would fail


def at_the_optimum(seed=0):
    """Only how clients differ there can move the model."""
    there = strongly_convex(seed).federation
    return quadratic_problem(np.asarray(there.hessians), np.asarray(there.centers), there.optimum())


OPTIMUM = [
    Case("feddyn-2", at_the_optimum, exact, 4e-4, SOME),
    Case("feddyn-3", at_the_optimum, exact, 5e-6, SOME),
    Case("feddyn-4", at_the_optimum, exact, 4e-4, SOME),
    Case("feddyn-5-convex", at_the_optimum, exact, 4e-4, SOME),
    Case("feddyn-5-strongly-convex", at_the_optimum, exact, 4e-4, SOME),
    Case("feddyn-5-nonconvex", at_the_optimum, exact, 4e-4, SOME),
    Case("feddr-3.1", at_the_optimum, exact, 5e-5, SOME),
    Case("scaffold-convex", at_the_optimum, full_gradients, 4e-4, SOME),
    Case("scaffold-strongly-convex", at_the_optimum, full_gradients, 4e-4, SOME),
]


@pytest.mark.parametrize("case", OPTIMUM, ids=str)
def test_terms_of_heterogeneity_alone_are_enough(case):
    """D = 0 and f(w_0) = f* leave only these."""
    low, high = compared(case, seed=0)
    assert np.all(low <= 1)
    assert np.max(high) >= case.close


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", CASES, ids=str)
def test_bounds_hold_on_many_problems(case):
    theorem = THEOREMS[case.theorem]
    for seed in range(1, 5):
        if theorem.applies(case.problem(seed).constants, case.setting) == "holds":  # else clients differ too much
            low, _ = compared(case, seed, seeds=None if case.cohort is None else 16)
            assert np.all(low <= 1), (seed, low.max())


# The bounds notice algorithms that are wrong.


@frozen
class WrongDyn(FedDyn):
    def solved(self, theta, g, client, alpha):
        theta_k, _ = super().solved(theta, -g, client, alpha)
        return theta_k, g - alpha * (theta_k - theta)


@frozen
class WrongOneGD(FedDynOneGD):
    def local(self, theta, g, client):
        theta_k = theta - (client.grad(theta) + g) / self.alpha
        return theta_k, g - self.alpha * (theta_k - theta)


@frozen
class WrongAvg(fl.FedAvg):
    def receive(self, s, dw, cohort):
        return Server(s.w - self.lr * dw)


@frozen
class WrongDANE(fl.FedDANE):
    def send(self, s):
        return s._replace(g=-s.g)


@frozen
class WrongProx(fl.FedProx):
    def receive(self, s, dw, cohort):
        return Server(s.w - self.lr * dw)


@frozen
class WrongScaffold(fl.Scaffold):
    def receive(self, s, mean, cohort):
        return super().receive(s, mean._replace(w=-mean.w), cohort)


WRONG = [
    (Case("feddyn-4", indefinite, exact, 0, rounds=300), WrongDyn),
    (Case("feddyn-5-convex", convex, exact, 0, rounds=300), WrongOneGD),
    (Case("fedavg-1", shifted, full_gradients, 0), WrongAvg),
    (Case("feddane-3", shared_optimum, exact, 0), WrongDANE),
    (Case("fedprox-4", shared_optimum, exact, 0), WrongProx),
    (Case("scaffold-convex", convex, full_gradients, 0, rounds=300), WrongScaffold),
]


@pytest.mark.parametrize(("case", "wrong"), WRONG, ids=lambda x: getattr(x, "__name__", None) or str(x))
def test_a_wrong_sign_breaks_the_bound(case, wrong):
    low, _ = compared(
        case, 0, lambda right: wrong(**{f.name: getattr(right, f.name) for f in dataclasses.fields(right)})
    )
    assert np.max(low) > 1


# Rates.


def slope(x, y):
    return np.polyfit(np.log(x), np.log(y), 1)[0]


ALONE = Setting()


def left_of(name, problem, solver, rounds, setting=ALONE, seeds=1, steps=None, **more):
    theorem = THEOREMS[name]
    steps = steps or theorem.recommended(problem.constants, setting, rounds)
    runs = points(theorem, problem, steps, solver(steps), rounds, seeds=seeds, **more)
    return theorem.left.curve(runs, problem.value(theorem.left), problem.constants, setting, steps)[0], steps


def test_feddyn_converges_like_1_over_t_where_losses_are_convex():
    left, _ = left_of("feddyn-2", convex(), exact, 1000)
    t = np.arange(1, 1001)
    assert slope(t[400:], left[400:]) < -1


def test_feddyn_converges_linearly_where_losses_are_strongly_convex():
    problem = strongly_convex()
    left, steps = left_of("feddyn-3", problem, exact, 800)
    by_round = np.log(left[799] / left[500]) / 299
    assert by_round < -np.log1p(problem.constants.mu.value / steps["algorithm.alpha"])


def test_feddr_converges_like_1_over_k():
    left, _ = left_of("feddr-corollary-3.1", indefinite(), exact, 200)
    t = np.arange(1, 201)
    assert slope(t[50:], left[50:]) == pytest.approx(-1, abs=0.1)
    c, theorem = indefinite().constants, THEOREMS["feddr-3.1"]
    bounds = [theorem.bound(k, c, Setting(), theorem.recommended(c, Setting(), k)) for k in t]
    assert slope(t, bounds) == pytest.approx(-1, abs=1e-9)


def stationary(m, rounds, steps_each):
    """The mean of |grad f|^2 in the second half of runs with corollary 1's steps, all Hessians 1: noise only."""
    rng = np.random.default_rng(0)
    problem = quadratic_problem(np.repeat(np.eye(20)[None], m, 0), rng.normal(size=(m, 20)), np.zeros(20), noise=1.0)
    setting = Setting(local_steps=steps_each)
    steps = THEOREMS["fedavg-corollary-1"].recommended(problem.constants, setting, rounds)
    solver = fl.SGD(lr=steps["solver.lr"], steps=steps_each, batch_size=1)
    runs = points(THEOREMS["fedavg-1"], problem, steps, solver, rounds)
    return problem.gradient(runs[:, rounds // 2 :]).mean()


def test_fedavg_speeds_up_linearly():
    """E |grad f|^2 is proportional to 1 / sqrt(m K T): four times as much of each halves it."""
    base = stationary(4, 300, 2)
    for more in (stationary(16, 300, 2), stationary(4, 1200, 2), stationary(4, 300, 8)):
        assert base / more == pytest.approx(2, rel=0.2)


@pytest.mark.parametrize("name", ["fedavg-corollary-1", "fedadagrad-corollary-1", "fedadam-corollary-2"])
def test_bounds_of_corollaries_fall_like_1_over_root_t(name):
    c, s = robust().constants, Setting(local_steps=K)
    t = np.geomspace(1e10, 1e12, 5)
    assert slope(t, [THEOREMS[name].bound(int(x), c, s, {}) for x in t]) == pytest.approx(-0.5, abs=0.03)


def test_fedavg_with_cohorts_has_no_speedup_in_k_where_clients_differ():
    """Theorem 2's bound, mended, grows like sqrt(K) where the printed corollary 2 has 1/sqrt(K)."""
    c, theorem = shifted(apart=20.0).constants, THEOREMS["fedavg-corollary-2-without-replacement"]
    bounds = [theorem.bound(10**10, c, Setting(cohort=3, local_steps=k), {}) for k in (4, 16, 64)]
    assert slope([4, 16, 64], bounds) == pytest.approx(0.5, abs=0.1)


def test_fedadagrad_and_fedadam_converge_with_the_recommended_steps():
    for name in ("fedadagrad-1", "fedadam-2"):
        short, _ = left_of(name, robust(), full_gradients, 25, Setting(local_steps=K))
        long, _ = left_of(name, robust(), full_gradients, 400, Setting(local_steps=K))
        assert long[-1] < 0.9 * short[-1]


# Slack.


def test_slack_of_a_method_that_is_gradient_descent():
    """FedAvg with one local step and everyone diverges above 2 / L_f; theorem 1 allows min(1/(8L), 1/(L eta))."""
    problem, theorem = strongly_convex(), THEOREMS["fedavg-1"]
    c = dataclasses.replace(problem.constants, sigma_g=Measured(1.0))
    s, rounds = Setting(local_steps=1), 100
    converges = converging(
        theorem, problem.federation, problem.w, lambda steps: fl.GD(lr=float(steps["solver.lr"]), steps=1), rounds
    )
    found = slack(theorem, c, s, rounds, converges, precision=1.02)
    eta = theorem.recommended(c, s, rounds)["algorithm.lr"]
    assert found.largest == pytest.approx(2 / (c.L_f.value * eta), rel=0.03)
    assert found.allowed == pytest.approx(min(1 / (8 * c.L.value), 1 / (c.L.value * eta)), rel=2e-3)
    assert found.ratio == pytest.approx(found.largest / found.allowed)


def test_a_method_that_always_converges_has_all_the_slack_that_is_looked_for():
    """FedDyn with exact solves of convex problems, which is ADMM."""
    problem, theorem = strongly_convex(), THEOREMS["feddyn-3"]
    converges = converging(theorem, problem.federation, problem.w, lambda steps: fl.Exact(), 40)
    assert slack(theorem, problem.constants, Setting(), 40, converges).ratio == MOST


def test_closed_forms_for_slack_are_those_of_these_tests():
    for problem in (strongly_convex(), indefinite(), shared_optimum()):
        ours = quadratic_constants(problem.federation, problem.w)
        for name in ("L", "L_f", "mu", "rho", "sigma_g_mean", "B", "D", "gap"):
            assert getattr(ours, name).value == pytest.approx(getattr(problem.constants, name).value, rel=1e-9), name


# What is printed and does not hold.


def test_theorem_2_of_generalized_fedavg_as_printed_is_exceeded():
    """Two kinds of clients, one drawn at a time, K = 20: sampling alone moves the model more than the bound has it.

    w_{t+1} = w_t - s (w_t - b_k), so that E w^2 = (1 - s)^2 E w^2 + s^2 with s = 1 - (1 - eta_l)^K times eta.
    """
    k, b, rounds = 20, np.array([[1.0], [-1.0], [1.0], [-1.0]]), 1500
    problem = quadratic_problem(np.ones((4, 1, 1)), b, np.ones(1))
    steps, setting = {"solver.lr": 0.01 / k, "algorithm.lr": 9.0}, Setting(cohort=1, local_steps=k)
    s = 9 * (1 - (1 - 0.01 / k) ** k)
    squares = [1.0]
    for _ in range(rounds - 1):
        squares.append((1 - s) ** 2 * squares[-1] + s**2)
    c, theorem = problem.constants, THEOREMS["fedavg-2-without-replacement"]
    assert theorem.permits(c, setting, steps)
    for t in range(1, rounds + 1):
        assert min(squares[:t]) <= theorem.bound(t, c, setting, steps)
    assert min(squares) > 1.5 * as_printed(rounds, c, setting, steps)
    runs = points(theorem, problem, steps, fl.GD(lr=0.01 / k, steps=k), 600, cohort=cohorts.uniform(1))
    assert problem.gradient(runs[0, 100:]).mean() == pytest.approx(squares[-1], rel=0.5)  # the model, too


def test_a_client_drawn_twice_has_the_same_noise_twice():
    """F_k = w^2 / 2 with noise of variance 1, K = 1: E w^2 has a closed form, above the printed bound."""
    problem = quadratic_problem(np.ones((4, 1, 1)), np.zeros((4, 1)), np.full(1, 0.3), noise=1.0)
    n, m, rounds, c = 8, 4, 3000, problem.constants
    steps, setting = {"solver.lr": 1e-3, "algorithm.lr": 100.0}, Setting(cohort=n, replacement=True, local_steps=1)
    squares = [0.09]
    for _ in range(rounds - 1):
        squares.append(0.9**2 * squares[-1] + 0.1**2 * (1 / n + (n - 1) / (n * m)))
    assert min(squares) == pytest.approx(0.0181, rel=0.01)
    assert THEOREMS["fedavg-2-with-replacement"].bound(rounds, c, setting, steps) >= min(squares)
    assert as_printed(rounds, c, setting, steps) < 0.8 * min(squares)


def test_feddr_as_printed_is_exceeded_by_one_client_a_round():
    """Algorithm 1 to the letter, F = (x -+ 1)^2 / 2 from the optimum x_0 = 0: x_1 = -+1/16, whoever is drawn."""
    eta = 1 / 3
    for b in (1.0, -1.0):
        first = eta * b / (1 + eta)  # prox(0)
        y = 0 - first
        x = (y + eta * b) / (1 + eta)
        mean = (2 * x - y - 2 * first) / 2
        assert mean**2 == pytest.approx(1 / 256)  # |grad f|^2; the printed bound is 160/3 L n (F(x_0) - F*) = 0
    problem = quadratic_problem(np.ones((2, 1, 1)), np.array([[1.0], [-1.0]]), np.zeros(1))
    theorem, s = THEOREMS["feddr-corollary-3.1"], Setting(cohort=1)
    assert problem.constants.gap.value == 0
    steps = theorem.recommended(problem.constants, s, 1)
    runs = points(theorem, problem, steps, fl.Exact(), 1, cohort=cohorts.uniform(1))
    assert 1 / 256 <= problem.gradient(runs[0, 1]) <= theorem.bound(1, problem.constants, s, steps)


def test_feddr_as_printed_is_exceeded_if_started_at_the_optimum():
    """F(w_0) - F* = 0 there, and so is the printed bound; but clients that differ pull the model away."""
    problem = strongly_convex()
    star = problem.federation.optimum()
    problem = quadratic_problem(np.asarray(problem.federation.hessians), np.asarray(problem.federation.centers), star)
    assert problem.constants.gap.value == pytest.approx(0, abs=1e-20)
    theorem = THEOREMS["feddr-corollary-3.1"]
    steps = theorem.recommended(problem.constants, Setting(), 30)
    runs = points(theorem, problem, steps, fl.Exact(), 30)
    left, _ = theorem.left.curve(runs, problem.gradient, problem.constants, Setting(), steps)
    assert left.max() > 1e-5
    # Algorithm 1 to the letter, with everyone and g = 0: x_tilde and x_bar start at w_0 whatever the first proxes are.
    a, b = np.asarray(problem.federation.hessians), np.asarray(problem.federation.centers)
    eta, mean = steps["algorithm.eta"], np.broadcast_to(star, b.shape)

    def prox(y):
        return np.stack(
            [np.linalg.solve(np.eye(4) + eta * h, v + eta * h @ o) for h, v, o in zip(a, y, b, strict=True)]
        )

    y, x_tilde = mean, star
    x = prox(y)
    for _ in range(3):
        x_hat = 2 * x - y
        y = y + (x_tilde - x)
        x = prox(y)
        x_tilde = x_tilde + (2 * x - y - x_hat).mean(0)
    assert problem.gradient(x_tilde) > 1e-5
    assert np.all(left <= [theorem.bound(t, problem.constants, Setting(), steps) for t in range(1, 31)])


def lag_after_a_round(problem: Problem, c_start: np.ndarray, eta: float, lr: float, steps: int):
    """Both sides of SCAFFOLD's lemma on the lag of control variates, as recalled, after a first round with one client.

    With x the model, a_{i,k} the point of client i's gradient number k in its last visit, at first w_0,

        Xi = mean_{i,k} |a_{i,k} - x|^2,   Xi+ <= (1 - 17 S/(36 N)) Xi + (S/N)^(2a-1) (|grad f|^2 / (48 L^2) + 97/48 E)

    for K eta lr <= (S/N)^a / (24 L), where E is the mean |y_{i,k} - x|^2 of all clients' local steps. Here a = 1.
    """
    a, b = np.asarray(problem.federation.hessians), np.asarray(problem.federation.centers)
    n, w = len(b), problem.w
    y = np.empty((n, steps + 1, len(w)))
    y[:, 0] = w
    for k in range(steps):
        grads = np.einsum("kij,kj->ki", a, y[:, k] - b)
        y[:, k + 1] = y[:, k] - lr * (grads - c_start + c_start.mean(0))
    after = []
    for i in range(n):
        lagging = np.repeat(np.repeat(w[None, None], n, 0), steps, 1)
        lagging[i] = y[i, :-1]
        after.append(np.mean(np.sum((lagging - (w + eta * (y[i, -1] - w))) ** 2, -1)))
    L = problem.constants.L.value
    drift = np.mean(np.sum((y[:, 1:] - w) ** 2, -1))
    return np.mean(after), (float(problem.gradient(w)) / (48 * L**2) + 97 / 48 * drift) / n


def test_the_lag_of_scaffolds_control_variates():
    """FedDyn's appendix C.3 disputes lemma 17 of SCAFFOLD's nonconvex proof with quadratics in a file not at hand.

    The lemma as recalled, at its first round: it holds if control variates start at the gradients of w_0, as the proof
    has them. It does not if they start at 0, as the algorithm does: near a stationary point of f clients that differ
    move the model, and with a server step above 1 their local steps are too short to account for it.
    """
    for seed, steps, eta in itertools.product(range(20), (1, 4), (1.0, 5.0)):
        problem = indefinite(seed % 3) if seed % 2 else strongly_convex(seed)
        a, b = np.asarray(problem.federation.hessians), np.asarray(problem.federation.centers)
        problem = quadratic_problem(a, b, np.linalg.solve(a.mean(0), np.einsum("kij,kj->i", a, b) / len(b)))
        lr = 1 / (24 * problem.constants.L.value * len(b) * steps * eta)
        gradients = np.einsum("kij,kj->ki", a, problem.w - b)
        left, right = lag_after_a_round(problem, gradients, eta, lr, steps)
        assert left <= right + 1e-15
        left, right = lag_after_a_round(problem, 0 * gradients, eta, lr, steps)
        assert left > right if eta > 1 else left > 0
    # The last of them with the algorithm itself: the mean squared move of the model is that of the formula.
    moves = []
    for i in range(len(b)):
        rule = cohorts.scheduled([[i]])
        (record,) = fl.simulate(
            fl.Scaffold(lr=eta), problem.federation, fl.GD(lr=lr, steps=steps), problem.w, 1, cohort=rule
        )
        moves.append(float(jnp.sum((record.w - problem.w) ** 2)))
    assert left == pytest.approx(np.mean(moves), rel=0.2)
