"""The battery must fail on the bugs that public implementations have. Each is planted here, and must be caught."""

import dataclasses

import jax.numpy as jnp
import pytest

import fedloom as fl
from fedloom.algorithms import feddr, feddyn, scaffold
from fedloom.hyperparameters import frozen, hyper, positive, static
from fedloom.problem import Problem
from fedloom.testing import check_algorithm
from tests.cases import CASES


@frozen
class WrongSignScaffold(fl.Scaffold):
    """The correction c_k - c instead of c - c_k."""

    def local(self, s, k, client):
        solution = client.solve(Problem(start=s.w, linear=k.c - s.c))
        c_new = k.c - s.c + (s.w - solution.w) / solution.lr_sum
        return scaffold.Server(solution.w - s.w, c_new - k.c), scaffold.Memory(c_new, jnp.array(True))


@frozen
class WrongControlScaffold(fl.Scaffold):
    """(v - w) / lr_sum where the paper has (w - v) / lr_sum."""

    def local(self, s, k, client):
        solution = client.solve(Problem(start=s.w, linear=s.c - k.c))
        c_new = k.c - s.c + (solution.w - s.w) / solution.lr_sum
        return scaffold.Server(solution.w - s.w, c_new - k.c), scaffold.Memory(c_new, jnp.array(True))


@frozen
class WholeControlScaffold(fl.Scaffold):
    """The client sends c_k+ instead of its change."""

    def local(self, s, k, client):
        reply, memory = super().local(s, k, client)
        return scaffold.Server(reply.w, memory.c), memory


@frozen
class UnweightedScaffold(fl.Scaffold):
    """c moves by the mean change, as if everybody had taken part."""

    def receive(self, s, mean, cohort):
        return scaffold.Server(s.w + self.lr * mean.w, s.c + mean.c)


@frozen
class UnsquaredProx(fl.Round):
    """mu/2 |v - w| instead of mu/2 |v - w|^2."""

    mu: float = hyper(positive, "weight", default=0.3)
    exact = False

    def init(self, w):
        return fl.Server(w)

    def send(self, s):
        return s.w

    def local(self, w, memory, client):
        def step(v):
            away = v - w
            norm = jnp.linalg.norm(away)
            unit = away / jnp.where(norm > 0, norm, 1)
            return v - client.solver.lr * (client.grad(v) + self.mu / 2 * unit)

        return client.repeat(3, step, w) - w, memory

    def receive(self, s, dw, cohort):
        return fl.Server(s.w + dw)


@frozen
class LostCorrectionFedDyn(fl.FedDyn):
    """theta = mean of theta_k: the server never applies h."""

    def receive(self, s, mean, cohort):
        return feddyn.Server(w=mean, h=feddyn.server_update(s, mean, cohort, self.alpha).h)


@frozen
class UnweightedFedDyn(fl.FedDyn):
    """h moves by the mean of the cohort, as if everybody had taken part."""

    def receive(self, s, mean, cohort):
        h = s.h - self.alpha * (mean - s.w)
        return feddyn.Server(w=mean - h / self.alpha, h=h)


@frozen
class HalfPenaltyFedDyn(fl.FedDyn):
    """Only the linear term of alpha/2 |v - theta|^2 remains: -alpha <theta, v>."""

    def local(self, theta, g, client):
        theta_k = client.solve(Problem(start=theta, linear=-g - self.alpha * theta)).w
        return theta_k, g - self.alpha * (theta_k - theta)


@frozen
class WrongSignWeightedFedDyn(fl.FedDyn):
    """g_k moves by +alpha_k (theta_k - theta)."""

    def solved(self, theta, g, client, alpha):
        theta_k, new = super().solved(theta, g, client, alpha)
        return theta_k, 2 * g - new


@frozen
class UndividedReplyFedDyn(fl.FedDyn):
    """1 / w_k is missing in the reply: the server's sums are weighted, though alpha_k is, too."""

    def local(self, theta, g, client):
        reply, g = super().local(theta, g, client)
        return feddyn.Plain(reply.theta / reply.count, jnp.ones_like(reply.count)), g


@frozen
class UndividedAlphaFedDyn(fl.FedDyn):
    """1 / w_k is missing in alpha_k: nobody weighs anything, and the limit is that of equal weights."""

    def solved(self, theta, g, client, alpha):
        return super().solved(theta, g, client, self.alpha)


@frozen
class MultipliedAlphaFedDyn(fl.FedDyn):
    """alpha_k = alpha w_k."""

    def solved(self, theta, g, client, alpha):
        return super().solved(theta, g, client, self.alpha**2 / alpha)


@frozen
class ShareForCountFedDyn(fl.FedDyn):
    """The plain sum of the active models is divided by their weight, not by their number."""

    def receive(self, s, mean, cohort):
        h = super().receive(s, mean, cohort).h
        return feddyn.Server(w=cohort.total.theta / cohort.share - h / self.alpha, h=h)


@frozen
class ZeroInitFedDR(fl.FedDR):
    """y_k and x_hat start at zero, as in the authors' code."""

    def init(self, w):
        return feddr.Server(w=w, x_hat=jnp.zeros_like(w))

    def init_client(self, w):
        return feddr.Memory(x=w, y=jnp.zeros_like(w))


@frozen
class InconsistentInitFedDR(fl.FedDR):
    """x_hat = w0 while the clients' 2 x_k - y_k add up to something else, here 2 w0."""

    def init_client(self, w):
        return feddr.Memory(x=w, y=jnp.zeros_like(w))


@frozen
class BiasCorrectedFedAdam(fl.FedAdam):
    """Kingma and Ba's bias correction where the paper has none."""

    def multiplier(self, t):
        t = t + 1.0
        return jnp.sqrt(1 - self.beta2**t) / (1 - self.beta1**t)


@frozen
class ZeroStartFedAdam(fl.FedAdam):
    """v starts at 0 instead of tau^2."""

    def init(self, w):
        return super().init(w)._replace(v=jnp.zeros_like(w))


@frozen
class OldDualFedPD(fl.FedPD):
    """Sends x + eta * the old lambda, as the authors' Matlab code does."""

    def local(self, x0, k, client):
        _, memory = super().local(x0, k, client)
        x = x0 + self.eta * (memory.dual - k.dual)
        return x + self.eta * k.dual, memory


@frozen
class ForgetfulFedSplit(fl.FedSplit):
    """z_k <- x + 2 (v - x): the memory is not accumulated."""

    def local(self, x, k, client):
        change, memory = super().local(x, k, client)
        return change, memory._replace(z=x + change)


@frozen
class UncorrectedGradientFedDANE(fl.FedDANE):
    """The correction is +g instead of g - grad F_k(w), as the released code computes for logistic models."""

    def solve(self, s, memory, client):
        return client.solve(Problem(start=s.w, linear=s.g, anchor=s.w, mu=self.mu)).w, memory


@frozen
class GrowingState(fl.FedAvg):
    """The server's model changes its type after the first round."""

    def receive(self, s, dw, cohort):
        return fl.Server((s.w + self.lr * dw).astype(jnp.float32))


BUGS = {
    "scaffold, sign": (WrongSignScaffold(), "optimum", None),
    "scaffold, sign of the control variate": (WrongControlScaffold(), "optimum", None),
    "scaffold, whole control variate": (WholeControlScaffold(), "optimum", None),
    "scaffold, weight": (UnweightedScaffold(), "optimum, partial", None),
    "fedprox, unsquared": (UnsquaredProx(), "optimum", None),
    "feddyn, lost correction": (LostCorrectionFedDyn(0.3), "optimum", None),
    "feddyn, weight": (UnweightedFedDyn(0.3), "optimum, partial", None),
    "feddyn, half the penalty": (HalfPenaltyFedDyn(0.3), "optimum", None),
    "weighted feddyn, sign": (WrongSignWeightedFedDyn(0.3, "alpha"), "optimum", None),
    "weighted feddyn, reply": (UndividedReplyFedDyn(0.3, "alpha"), "optimum", None),
    "weighted feddyn, alpha not divided": (UndividedAlphaFedDyn(0.3, "alpha"), "optimum", None),
    "weighted feddyn, alpha multiplied": (MultipliedAlphaFedDyn(0.3, "alpha"), "optimum", None),
    "weighted feddyn, share": (ShareForCountFedDyn(0.3, "alpha"), "optimum, partial", None),
    "feddr, zero initialisation": (ZeroInitFedDR(2.0), "optimum", None),
    "feddr, inconsistent initialisation": (InconsistentInitFedDR(2.0), "optimum", None),
    "fedadam, bias correction": (BiasCorrectedFedAdam(tau=1e-3), "transcription", "fedadam"),
    "fedadam, v from 0": (ZeroStartFedAdam(tau=1e-3), "transcription", "fedadam"),
    "fedpd, old dual": (OldDualFedPD(2.0), "transcription", "fedpd"),
    "fedsplit, memory": (ForgetfulFedSplit(2.0), "optimum", None),
    "feddane, correction": (UncorrectedGradientFedDANE(mu=0.5), "optimum", None),
    "type of the state": (GrowingState(), "structure", None),
}


@pytest.mark.parametrize(("algorithm", "check", "case"), BUGS.values(), ids=BUGS.keys())
def test_the_battery_catches(algorithm, check, case):
    more = {} if case is None else {"transcription": CASES[case].transcription, "solver": CASES[case].solver}
    with pytest.raises(AssertionError, match=f"fails '{check}'"):
        check_algorithm(algorithm, **more)


def test_the_invariant_catches_what_convergence_alone_would_not():
    """With zero rounds to converge in, FedDR's zero initialisation still breaks x_hat = sum p_k (2 x_k - y_k)."""
    from fedloom.testing import imbalance

    federation = fl.quadratics(seed=3)
    w = jnp.array([2.0, -1.0, 0.5, 3.0])
    for algorithm, holds in ((fl.FedDR(2.0), True), (ZeroInitFedDR(2.0), False)):
        record = next(fl.simulate(algorithm, federation, fl.Exact(), w, 1, cohort=fl.cohorts.uniform(3)))
        assert (imbalance(record, algorithm, federation, w) < 1e-10) == holds


def test_a_homogeneous_federation_would_hide_the_wrong_sign():
    """Why the battery's clients differ: on identical clients the wrong sign is invisible."""
    federation = fl.quadratics(seed=3)
    same = dataclasses.replace(
        federation, **{f: jnp.stack([getattr(federation, f)[0]] * 7) for f in ("hessians", "centers")}
    )
    w = jnp.array([2.0, -1.0, 0.5, 3.0])
    run = fl.simulate(WrongSignScaffold(), same, fl.GD(0.1, 3), w, 2000, chunk=2000)
    assert jnp.linalg.norm(list(run)[-1].w - same.optimum()) < 1e-9


@frozen
class CompiledInFedAvg(fl.Round):
    """A step size that is part of the program: a grid of them would compile for every point."""

    lr: float = static(positive, "server step size", default=1.0)
    exact = False

    init, send, local, receive = (getattr(fl.FedAvg, name) for name in ("init", "send", "local", "receive"))


def test_the_battery_catches_recompilation():
    with pytest.raises(AssertionError, match="fails 'compilation'"):
        check_algorithm(CompiledInFedAvg())
