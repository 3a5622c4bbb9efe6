"""FedOpt's claims, and their causes, on figures made by hand."""

import math

import numpy as np
import pytest

from docs import causes
from docs.causes.cause import in_every_seed
from docs.causes.why import why
from fedloom.reproductions import find
from fedloom.reproductions.fedopt import ADAPTIVE, LOCAL, SERVER, near_best, slope_of_best
from fedloom.schedules import at
from fedloom.tasks.fedopt_tables import METHODS
from tests.test_claims import FAILS, HOLDS, study, verdicts
from tests.test_papers import figures_of

DECAY = "fedopt-table11-mnist-writers"
HEAT_MAPS = ["fedopt-figure2-digits", "fedopt-figure2-mnist-writers"]


def accuracies(best):
    """Of a grid in which the best server step for a client's step is the one at best(its place), if there is one."""
    return [0.9 if best(i) == j else 0.1 for i in range(len(LOCAL)) for j in range(len(SERVER))]


def test_the_slope_of_a_diagonal_and_of_a_rectangle():
    assert slope_of_best(accuracies(lambda i: 8 - i)) == pytest.approx(-1)
    assert [slope_of_best(accuracies(lambda i, j=j: j)) for j in range(9)] == [0.0] * 9  # not nearly
    assert slope_of_best(accuracies(lambda i: i)) == pytest.approx(1)
    # Client steps that do not work do not count.
    assert slope_of_best(accuracies(lambda i: 8 - i if i < 3 else -1)) == pytest.approx(-1)
    assert math.isnan(slope_of_best(accuracies(lambda i: 2 if i == 5 else -1)))


def test_the_share_of_step_sizes_that_work():
    assert near_best([0.9, 0.86, 0.84, -math.inf]) == 0.5
    assert math.isnan(near_best([-math.inf, -math.inf]))


@pytest.mark.parametrize("name", HEAT_MAPS)
def test_what_heat_maps_run(name):
    """The paper's grids, and for adaptive methods a hundredth of its tau beside it."""
    r = find(name)
    task = name.removeprefix("fedopt-figure2-")
    maps = [(task, METHODS, 1e-3), (f"{task}, tau=1e-5", ADAPTIVE, 1e-5)]
    maps += [("digits, as printed", ADAPTIVE, 1e-3)] * (task == "digits")
    for setting, methods, tau in maps:
        assert [line.method for line in r.lines if line.setting == setting and line.grid] == list(methods)
        for line in (line for line in r.lines if line.setting == setting):
            method = line.method.split(",")[0]
            found = [(e.solver.lr, e.algorithm.lr) for e in (r.experiments[run] for run in line.runs)]
            steps = [(10 ** (i / 2 - 3), 10 ** (j / 2 - 3)) for i in range(8) for j in range(9)]
            np.testing.assert_allclose(found, steps)
            if method in ADAPTIVE:
                run = [r.experiments[name].algorithm for name in line.runs]
                assert {a.tau for a in run} == {tau}
                variant = ("smoothed", None) if setting == "digits, as printed" else ("raw", 0.0)
                assert {(a.second_moment, a.initial_v) for a in run} == {variant}
    assert len(r.experiments) == 8 * 9 * sum(len(methods) for _, methods, _ in maps)


def test_the_printed_variant_is_compared_where_it_is_run():
    words = "ends within a point of the variant that was run"
    claims = [c for c in find("fedopt-figure2-digits").claims if words in c.words]
    assert [c.words.split(":")[0] for c in claims] == list(ADAPTIVE)
    for claim, m in zip(claims, ADAPTIVE, strict=True):
        ends = [claim.holds({("digits", m): 0.9, ("digits, as printed", m): x}) for x in (0.88, 0.895, 0.905, 0.92)]
        assert (ends, claim.ours) == ([False, True, True, False], True)
    assert not any(words in c.words for c in find("fedopt-figure2-mnist-writers").claims)


@pytest.mark.parametrize("name", HEAT_MAPS)
def test_rectangles_triangles_and_tau(name):
    r = find(name)
    task = name.removeprefix("fedopt-figure2-")
    claims = {c.words.split(":")[0]: c for c in r.claims if "depends less" in c.words}
    assert list(claims) == ["rectangles and triangles", *ADAPTIVE]

    def answers(**slopes):
        """Of adaptive methods with 1e-3 and 1e-5, and of the other two."""
        f = {(task, f"{m}, slope"): slopes.get(m, -0.3) for m in ADAPTIVE}
        f |= {(f"{task}, tau=1e-5", f"{m}, slope"): slopes.get("small", -0.1) for m in ADAPTIVE}
        f |= {(task, f"{m}, slope"): slopes.get(m, -0.8) for m in ("fedavgm", "fedavg")}
        return [claim.holds(f) for claim in claims.values()]

    assert answers() == [True] * 4
    assert answers(fedadam=-0.9) == answers(fedadam=0.9) == answers(fedavg=0.2) == [False, True, True, True]
    assert answers(small=0.5) == answers(small=-0.5) == [True, False, False, False]
    assert answers(fedadam=math.nan) == [None, True, None, True]
    assert [claim.ours for claim in claims.values()] == [False, True, True, True]


@pytest.mark.parametrize("name", HEAT_MAPS)
def test_the_cause_of_triangles_needs_a_small_tau_to_flatten_them(name):
    small = f"{name.removeprefix('fedopt-figure2-')}, tau=1e-5"

    def shown(of_small, fedavgm=-0.7, fedavg=-0.7, last=0.0, before=-0.8):
        """Of ten seeds, in the last of which FedYogi may have other slopes: with the small tau, and before."""
        made = figures_of(name, lambda line: of_small if line.setting == small else -0.8, seeds=10)
        for method, slope in (("fedavgm", fedavgm), ("fedavg", fedavg)):
            made[small.split(",")[0], f"{method}, slope"] = dict.fromkeys(range(10), slope)
        made[small, "fedyogi, slope"][9] += last
        made[small.split(",")[0], "fedyogi, slope"][9] = before
        return len(causes.shown(name, made)), "tau. Where clients' changes" in "\n".join(why(find(name), made))

    assert shown(-0.1) == shown(0.1) == (1, True)
    assert shown(-0.1, fedavgm=-0.9, fedavg=-0.9) == (1, False)  # the claim holds, so there is nothing to explain
    assert shown(-0.9)[0] == shown(-0.1, fedavgm=-0.05)[0] == shown(-0.1, fedavg=-0.05)[0] == 0
    assert shown(-0.1, last=-0.55)[0] == 1
    assert shown(-0.1, last=-0.9)[0] == 0  # steeper than FedAvg in one seed
    assert shown(-0.1, before=-0.05)[0] == 0  # flatter with the small tau in nine of ten seeds is not in every one


def test_a_claim_that_there_is_not_holds_in_no_seed():
    made = figures_of(DECAY, lambda line: 98.0 if line.setting == "ExpDecay" else 97.0)
    words = "fedadam ends higher with ExpDecay than with a constant step size"
    assert in_every_seed(DECAY, words, made)
    assert not in_every_seed(DECAY, words.replace("fedadam", "adam"), made)


def test_steps_that_decay():
    better = {("ExpDecay", m): 9.0 for m in ("fedadagrad", "fedadam", "fedyogi", "fedavgm")}  # others are 8
    made = study(DECAY, better)
    found = {m: verdicts(made, f"{m} ends higher with ExpDecay than")[""] for m in METHODS}
    assert found == {"fedadagrad": HOLDS, "fedadam": HOLDS, "fedyogi": HOLDS, "fedavgm": HOLDS, "fedavg": FAILS}


def test_larger_steps_that_decay_are_compared_with_the_better_constant_one():
    for constant, verdict in (("constant step size", FAILS), ("constant step size, larger", FAILS), ("none", HOLDS)):
        made = study(DECAY, {("ExpDecay, larger", m): 9.0 for m in METHODS} | {(constant, m): 9.5 for m in METHODS})
        for m in METHODS:
            assert verdicts(made, f"{m} ends higher with ExpDecay from the next") == {"": verdict}


def test_larger_steps_are_the_next_on_the_grid():
    e = find(DECAY).experiments
    for m in METHODS:
        for words, later in (("constant step size", 1.0), ("ExpDecay", 0.1)):
            own, larger = (e[f"{words}{which}, {m}"] for which in ("", ", larger"))
            assert larger.algorithm == own.algorithm
            for t, times in ((0, 1.0), (499, 1.0), (500, later)):
                start = at(own.solver.lr, 0) * times
                assert [at(x.solver.lr, t) for x in (own, larger)] == pytest.approx([start, start * 10**0.5])


def test_where_the_table_has_no_point_between_them_adaptive_methods_are_comparable():
    for name in ("fedopt-emnist-cr", "fedopt-shakespeare-roles"):
        setting = find(name).lines[0].setting
        values = {(line.setting, line.method): 0.5 for line in find(name).lines}
        for yogi, verdict in ((0.491, HOLDS), (0.489, FAILS)):
            made = study(name, values | {(setting, "fedyogi"): yogi})
            assert verdicts(made, "FedAdam and FedYogi end at most a point below") == {setting: verdict}


def test_adaptive_methods_are_better_in_accuracy_and_in_error():
    for name, best in (("fedopt-cifar10-lda", 0.9), ("fedopt-emnist-ae", 0.1)):
        values = {(line.setting, line.method): 0.5 for line in find(name).lines}
        setting = find(name).lines[0].setting
        for methods, verdict in ((("fedadam", "fedyogi"), HOLDS), (("fedadam",), FAILS)):
            made = study(name, values | {(setting, m): best for m in methods})
            assert verdicts(made, "FedAdam and FedYogi") == {setting: verdict}
