"""Theorems as values: assumptions, step sizes and constants, against the papers' lemmas added up again."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from fedloom.algorithms import ALGORITHMS
from fedloom.theory import THEOREMS, Constants, Measured, Setting, asyncfeddr_rho
from fedloom.theory.assumptions import ONLY_BOUNDS
from fedloom.theory.asyncfeddr import _rho
from fedloom.theory.feddane import rho_nonconvex, rho_own
from fedloom.theory.feddr import constant
from fedloom.theory.fedopt import _noise
from tests.bound_problems import convex, indefinite, robust, shared_optimum, shifted, strongly_convex

ALL = pytest.mark.parametrize("name", THEOREMS)
EMPTY = Constants(weights=np.full(8, 1 / 8), dimension=4)


def known(**more):
    """Constants of everything, for all w."""
    values = dict(
        L=1.0, L_f=0.8, mu=0.1, rho=0.0, sigma_l=0.5, sigma_g=1.0, sigma_g_mean=0.7, B=1.1, G=2.0, D=1.0, gap=0.5
    )
    values |= more
    measured = {name: Measured(value) for name, value in values.items()}
    return Constants(np.full(8, 1 / 8), 4, **measured, everywhere=frozenset(measured))


def settings(name):
    """One in which the theorem applies."""
    if "with-replacement" in name:
        return Setting(cohort=3, replacement=True, local_steps=5)
    if any(part in name for part in ("fedavg", "fedad", "scaffold")):
        return Setting(local_steps=5)
    return Setting(cohort=1, staleness=2) if "async" in name else Setting()


@ALL
def test_recommended_steps_are_allowed_and_bounds_fall(name):
    theorem, c, s = THEOREMS[name], known(), settings(name)
    steps = theorem.recommended(c, s, 100)
    assert theorem.applies(c, s) == "holds", theorem.check(c, s)
    assert theorem.permits(c, s, steps)
    assert {key.split(".")[0] for key in steps} <= {"algorithm", "solver"}
    assert isinstance(theorem.configured(steps), theorem.algorithm)
    if name == "scaffold-nonconvex":
        assert math.isnan(theorem.bound(10, c, s, steps))
        return
    bounds = [theorem.bound(t, c, s, steps) for t in (1, 10, 100)]
    assert 0 < bounds[2] < bounds[1] < bounds[0] < math.inf


@ALL
def test_what_was_not_measured_is_unknown_and_gives_no_number(name):
    theorem, s = THEOREMS[name], settings(name)
    assert theorem.applies(EMPTY, s) == "unknown"
    steps = theorem.recommended(EMPTY, s, 10)
    assert math.isnan(theorem.bound(3, EMPTY, s, steps)), "no bound without constants"


@ALL
def test_what_was_measured_at_some_points_is_not_known_for_all(name):
    c = dataclasses.replace(known(), everywhere=frozenset())
    found = THEOREMS[name].check(c, settings(name))
    assert found["Every F_k has an L-Lipschitz gradient."].status == "unknown"
    assert THEOREMS[name].applies(c, settings(name)) == "unknown"


@ALL
def test_each_assumption_can_fail(name):
    theorem, c, s = THEOREMS[name], known(), settings(name)
    breaks = {
        "L": known(L=math.inf),
        "rho": known(rho=0.3),
        "mu": known(mu=0.0, rho=0.0),
        "sigma_l": known(sigma_l=math.inf),
        "sigma_g": known(sigma_g=math.inf),
        "B": known(B=math.inf),
        "G": known(G=math.inf),
        "weights": dataclasses.replace(c, weights=np.r_[0.3, np.full(7, 0.1)]),
        "w*": dataclasses.replace(c, everywhere=c.everywhere - {"sigma_g_mean"}),
    }
    others = [
        Setting(cohort=3),
        dataclasses.replace(s, staleness=1),
        dataclasses.replace(s, regularizer=True),
        Setting(local_steps=7),
        Setting(inexactness=1.0),
        Setting(cohort=3, replacement=True),
        dataclasses.replace(s, local_steps=None, inexactness=1.0),
        dataclasses.replace(s, replacement=False),
        Setting(cohort=3, local_steps=5),
        dataclasses.replace(s, shuffled=True),
    ]
    failed = {
        sentence
        for constants, setting in [*((b, s) for b in breaks.values()), *((c, o) for o in others)]
        for sentence, check in theorem.check(constants, setting).items()
        if check.status == "fails" or (check.status == "unknown" and sentence in ONLY_BOUNDS)
    }
    weighted = theorem.check(breaks["weights"], Setting(cohort=3, local_steps=s.local_steps))
    failed |= {sentence for sentence, check in weighted.items() if check.status == "fails"}
    assert failed == {a.sentence for a in theorem.assumptions}


def test_every_theorem_has_its_words_and_every_paper_its_theorems():
    assert {theorem.algorithm for theorem in THEOREMS.values()} <= set(ALGORITHMS.values())
    for theorem in THEOREMS.values():
        assert "arXiv:" in theorem.citation
        assert theorem.about.endswith(".")
        assert theorem.silent
        assert theorem.reading.split(":")[0].split(";")[0].split(",")[0].split(" ")[0] in (
            "as",
            "recovered",
            "derived",
            "recalled",
            "step",
        )
    assert len({theorem.name for theorem in THEOREMS.values()}) == len(THEOREMS)


# FedDyn's constants from its lemmas. e is epsilon_t, G the gap or the squared gradient at gamma_{t-1}.

GRID = list(itertools.product((1.0, 1.3, 3.0, 20.0), (1.0, 2.0, 8.0, 100.0), (1e-3, 0.03, 0.3, 1.0)))  # alpha, m/P, mu


@pytest.mark.parametrize(("times", "scarcity", "mu"), GRID)
def test_feddyn_theorem_2_follows_from_lemmas_3_to_5(times, scarcity, mu):
    alpha = 25 * times  # L = 1
    e = 1 / (alpha**2 - 4)  # lemma 4: epsilon <= e (8 C + 8 G)
    # equation 10 with lemma 3: |gamma+|^2 <= |gamma|^2 - 2/alpha G + (1 + 1/alpha) epsilon; lemma 5, times kappa:
    # C+ <= (1 - P/m) C + 2 P/m epsilon + 4 P/m G
    p = 1 / scarcity
    kappa = 8 * e * (1 + 1 / alpha) / (p - 16 * e * p)
    kappa_0 = 2 / alpha - 4 * p * kappa - 8 * e * (1 + 1 / alpha + 2 * p * kappa)
    assert kappa == pytest.approx(8 * scarcity / alpha * (1 + alpha) / (alpha**2 - 20))  # as printed in lemma 1
    assert kappa_0 == pytest.approx(2 / alpha * (alpha**2 - 20 * alpha - 40) / (alpha**2 - 20))
    assert 1 / kappa_0 <= 10 * alpha
    assert kappa / kappa_0 <= 100 * scarcity / alpha


@pytest.mark.parametrize(("times", "scarcity", "mu"), GRID)
def test_feddyn_theorem_3_follows_from_its_lemmas(times, scarcity, mu):
    alpha, p = times * max(5 * scarcity * mu, 30), 1 / scarcity
    e, r = 1 / (alpha**2 - 4), 1 + mu / alpha
    # r |gamma+|^2 <= |gamma|^2 - 2/alpha G + (1 + 1/alpha) epsilon, and r kappa C+ with the rest is kappa C
    rest = 1 - r * (1 - p) - 16 * e * r * p
    kappa = 8 * e * (1 + 1 / alpha) / rest
    kappa_0 = 2 / alpha - 4 * p * r * kappa - 8 * e * (1 + 1 / alpha + 2 * p * r * kappa)
    assert rest > 0
    assert kappa_0 > 0
    assert 1 / kappa_0 <= 20 * alpha
    assert kappa / kappa_0 <= 400 * scarcity / alpha


@pytest.mark.parametrize(("times", "scarcity", "mu"), GRID)
def test_feddyn_theorem_4_follows_from_lemmas_10_to_12(times, scarcity, mu):
    alpha, m, P = 20 * scarcity * times, scarcity, 1.0
    e, q = 1 / (alpha**2 - 4), 0.5 + 0.5 / alpha  # lemma 11: epsilon <= e (8 C + 4 G); equation 14 with lemma 3
    b = 2 * P / (2 * m - P) + 2 * m / P  # lemma 12 with lemma 3
    kappa = 8 * q * e / (P / (2 * m - P) - 8 * b * e)
    kappa_0 = 1 / (2 * alpha) - 4 * e * (q + kappa * b)
    assert kappa_0 > 0
    assert 1 / kappa_0 <= 3 * alpha
    assert kappa / kappa_0 <= 30 * scarcity / alpha


@pytest.mark.parametrize(("times", "scarcity", "mu"), GRID)
def test_feddyn_theorem_5_follows_from_lemmas_14_and_15(times, scarcity, mu):
    for mu_or_0 in (mu, 0.0):
        alpha, p = times * 50 * max(scarcity * mu_or_0, 1), 1 / scarcity
        r = 1 + mu_or_0 / (3 * alpha)
        # lemma 14: epsilon <= (8/alpha^2 + 4/alpha^4) A + 8/alpha^2 G; lemma 15, times kappa r:
        # A+ <= (1 - P/m + 2 P/m / alpha^2) A + 4 P/m G; equation 17 with (1 + mu)/alpha^3 A
        a = (1 + mu_or_0) / alpha**3 + (1 + mu_or_0 / alpha) * (8 / alpha**2 + 4 / alpha**4)
        kappa = a / (1 - r * (1 - p + 2 * p / alpha**2))
        kappa_0 = 2 / alpha - (1 + mu_or_0 / alpha) * 8 / alpha**2 - 4 * p * r * kappa
        assert kappa > 0
        assert kappa_0 >= 1 / alpha
        assert kappa / kappa_0 <= 10 * scarcity / alpha


@pytest.mark.parametrize(("times", "scarcity", "mu"), GRID)
def test_feddyn_theorem_5_nonconvex_follows_from_lemmas_19_and_20(times, scarcity, mu):
    alpha, m, P = 50 * scarcity * times, scarcity, 1.0
    e = 4 / alpha**2 + 8 / alpha**4  # lemma 19: epsilon <= e (B + G)
    keep = 2 * m / (2 * m - P) * (1 - P / m + 2 * P / m / alpha**2)  # lemma 20: of B
    kappa = (1 / alpha**3 + e / 2) / (1 - keep - 2 * m / P * e)  # equation 19 with epsilon / 2
    kappa_0 = 1 / (2 * alpha) - 1 / alpha**3 - kappa * 4 * P / (2 * m - P) / alpha**2 - (0.5 + 2 * m / P * kappa) * e
    assert kappa > 0
    assert 0 < 1 / kappa_0 <= 2.2 * alpha  # 4 is needed
    assert kappa / kappa_0 <= 8.2 * scarcity / alpha  # 50 is needed


# Others.


def test_feddr_constants_at_the_corollarys_steps():
    c = known(L=2.0)
    assert constant(c, Setting(probability=1 / 8), 1.0, 1 / 6) == pytest.approx(128 / 3 * 2 * 8)
    assert math.isinf(constant(c, Setting(), 1.0, 0.26))  # alpha < 2 (1 - L eta)


def test_asyncfeddr_differs_from_formula_9_as_its_docstring_says():
    c = known(L=1.0)
    for tau, alpha, eta in ((0, 0.5, 0.2), (1, 0.3, 0.3), (5, 0.2, 0.1)):
        late = max(2 * tau**2 - 8, 0) / 64
        printed = asyncfeddr_rho(alpha, eta, 1.0, 8, tau)
        derived = printed - (2 * eta**2 + alpha * eta**2 + late * alpha * (1 + 3 * eta**2)) / (alpha * eta * 8)
        assert _rho(c, Setting(staleness=tau), alpha, eta) == pytest.approx(derived)


def test_feddr_has_no_bound_with_a_regularizer():
    """F_k = (w - 1)^2 / 2, g = |w| / 2, w_0 = 1: f(w_0) = f*, but w_1 = 5/6 and G(w_1) = 1/3."""
    c, s = known(L=1.0, L_f=1.0, gap=0.0, sigma_g_mean=0.0), Setting(regularizer=True)
    for name in ("feddr-3.1", "feddr-corollary-3.1", "asyncfeddr-4.1"):
        theorem, own = THEOREMS[name], dataclasses.replace(s, cohort=1 if "async" in name else None)
        steps = theorem.recommended(c, own, 1)
        assert math.isnan(theorem.bound(1, c, own, steps))
        assert theorem.applies(c, own) == "unknown"
        assert theorem.permits(c, own, steps)


@pytest.mark.parametrize(("cohort", "times"), [(None, 1.0), (3, 1.5)])
def test_fedopts_condition_is_equation_11_with_lemma_3(cohort, times):
    """4 eta_l^2 K^2 L^2 times lemma 3's 30 eta_l^2 K^2 (with cohorts half as much again), and 2 eta_l^2 K^2."""
    e, K, L, tau = 0.01, 5, 3.0, 0.7
    own = _noise(1, known(L=L), Setting(cohort=cohort, local_steps=K), e, tau)[2]
    assert own * tau**2 == pytest.approx(times * 4 * (e * K * L) ** 2 * 30 * (e * K) ** 2 + 2 * (e * K) ** 2)
    assert "with cohorts of clients that differ, like sqrt(K/(n T))" in THEOREMS["fedadam-corollary-2"].about


def test_asyncfeddr_counts_one_reply_at_an_update():
    sentence, theorem = "One reply is counted at an update.", THEOREMS["asyncfeddr-4.1"]
    for s, status in (
        (Setting(cohort=1), "holds"),
        (Setting(cohort=3), "fails"),
        (Setting(cohort=6, replies=1, staleness=6), "holds"),
        (Setting(cohort=6, replies=2, staleness=3), "fails"),
    ):
        assert theorem.check(known(), s)[sentence].status == status


def test_fedprox_asks_for_draws_by_weight():
    theorem, uneven = THEOREMS["fedprox-4"], dataclasses.replace(known(), weights=np.r_[0.3, np.full(7, 0.1)])
    sentence = next(a.sentence for a in theorem.assumptions if "drawn by weight" in a.sentence)
    twice = Setting(cohort=3, replacement=True)
    assert theorem.check(uneven, twice)[sentence].status == "fails"
    assert theorem.check(known(), twice)[sentence].status == "holds"
    assert theorem.check(uneven, dataclasses.replace(twice, by_weight=True))[sentence].status == "holds"


def test_bounds_that_ask_about_the_optimum_say_so():
    elsewhere = dataclasses.replace(known(), everywhere=known().everywhere - {"sigma_g_mean"})
    asking = {name for name, t in THEOREMS.items() if t.applies(elsewhere, settings(name)) == "unknown"}
    convex_ones = {"feddyn-2", "feddyn-3", "feddyn-5-convex", "feddyn-5-strongly-convex"}
    assert asking == convex_ones | {"scaffold-convex", "scaffold-strongly-convex"}
    there = dataclasses.replace(elsewhere, at_optimum=True)
    assert all(THEOREMS[name].applies(there, settings(name)) == "holds" for name in asking)


def test_feddane_corollary_4_is_theorem_3():
    for b in (1.0, 1.5, 10.0):
        c = known(L=2.0, B=b)
        rho = rho_nonconvex(5 * 2 * b**2, c, 0.0, 0.0)
        assert rho == pytest.approx((3 - 0.5 / b**2) / (25 * 2 * b**2))
        assert THEOREMS["feddane-corollary-4"].bound(7, c, Setting(), {}) == pytest.approx(0.5 / (7 * rho))
        assert rho_own(np.full(8, 20.0), known(L=2.0, L_f=2.0, B=b), 0.1) == pytest.approx(
            rho_nonconvex(20.0, c, 0.1, 0.0)
        )


def test_feddane_rho_as_printed():
    c, mu, g = known(L=2.0, B=1.3), 30.0, 0.2
    printed = (
        (2 - 3 * g) / (2 * mu)
        - (2 * 2 * (1 + g) ** 2 + 3 * 2) / (2 * mu**2)
        - (1.3**2 - 1) * ((2 * (1 + g) ** 2 + 2) / mu**2 + g / mu)
    )
    assert rho_nonconvex(mu, c, g, 0.0) == pytest.approx(printed)


def test_clients_that_differ_at_the_optimum_have_no_feddane_theorem():
    c = strongly_convex().constants
    assert THEOREMS["feddane-3"].applies(c, Setting()) == "fails"
    assert THEOREMS["fedprox-4"].applies(c, Setting()) == "fails"
    assert THEOREMS["feddyn-3"].applies(c, Setting()) == "holds"


def test_which_theorems_apply_where():
    """By kind of losses, with everyone and exact solves."""
    holds = {
        make.__name__: {k for k, t in THEOREMS.items() if t.applies(make().constants, Setting()) == "holds"}
        for make in (strongly_convex, convex, indefinite, shared_optimum)
    }
    assert "feddyn-3" in holds["strongly_convex"]
    assert "feddyn-3" not in holds["convex"]
    assert "feddyn-2" in holds["convex"]
    assert "feddyn-2" not in holds["indefinite"]
    assert {"feddyn-4", "feddr-3.1", "feddyn-5-nonconvex"} <= holds["indefinite"]
    assert {"feddane-3", "fedprox-4"} <= holds["shared_optimum"]
    local = Setting(local_steps=5)
    assert THEOREMS["fedavg-1"].applies(shifted().constants, local) == "holds"
    assert THEOREMS["fedadam-2"].applies(robust().constants, local) == "holds"
    assert THEOREMS["fedadam-2"].applies(shifted().constants, local) == "unknown"  # G of squares was not measured
    assert (
        "inexact" in THEOREMS["feddyn-2"].check(convex().constants, local)["Local problems are solved exactly."].reason
    )
