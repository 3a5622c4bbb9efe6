"""What several seeds say: intervals, ratios, verdicts; and results that are recorded and read again."""

import dataclasses
import json
import math
import subprocess
from functools import partial
from operator import itemgetter

import numpy as np
import pytest
from scipy import stats

from fedloom.experiments.about import commit
from fedloom.experiments.study import Study
from fedloom.reproductions import REPRODUCTIONS, fedopt, find, planned, recorded_text
from fedloom.reproductions import recording as module
from fedloom.reproductions.merging import together
from fedloom.reproductions.overview import LOCAL, entry, rounds_of, seconds_of, seconds_of_round
from fedloom.reproductions.recording import POINTS, Points, from_json, mean_curve, record
from fedloom.reproductions.reproduction import Claim, Grid, Line, Reproduction, smaller
from fedloom.reproductions.spread import Spread, Verdict, ratio
from fedloom.tasks import TASKS, Measure
from tests.test_claims import result
from tests.test_project import ROOT


def test_the_interval_is_student_s_for_logarithms():
    values = (100.0, 150.0, 130.0)
    low, high = stats.t.interval(0.95, 2, np.mean(np.log(values)), stats.sem(np.log(values)))
    assert Spread(values).interval == pytest.approx((math.exp(low), math.exp(high)))
    assert Spread(values).mean == pytest.approx(stats.gmean(values))


def test_values_that_may_be_negative_have_an_ordinary_interval():
    values = (-1.0, 2.0, 3.0, 1.0)
    assert Spread(values).interval == pytest.approx(stats.t.interval(0.95, 3, np.mean(values), stats.sem(values)))


def test_the_interval_covers_the_mean_19_times_in_20():
    """Counts whose logarithms are normal: of 2,000 studies with 3 seeds, 95% cover, to within four standard errors."""
    rng = np.random.default_rng(0)
    ends = [Spread(tuple(np.exp(rng.normal(5, 0.3, 3)))).interval for _ in range(2000)]
    covered = np.mean([low <= math.exp(5) <= high for low, high in ends])
    assert abs(covered - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 2000)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((7.0,), "7"),
        ((4.0, 9.0), "6 (4 to 9)"),
        ((8.0, 8.0, 8.0), "8 [8, 8]"),
        ((1.001, 1.002), "1.0015 (1.001 to 1.002)"),  # as many digits as tell the ends apart
        ((1200.0, 1300.0), "1249 (1200 to 1300)"),  # and all before the point
        ((-4.0, -2.0), "-3 (-4 to -2)"),
        ((0.0, 0.0), "0 (0 to 0)"),
        ((math.inf,), "not reached"),
        ((math.inf, math.inf), "not reached (2 seeds)"),
        ((4.0, 9.0, math.inf), "6 (4 to 9), not reached in 1 of 3"),
        ((5.0, math.inf), "5, not reached in 1 of 2"),
        ((10 / 72,) * 10, "0.1389 [0.139, 0.139]"),  # whatever logarithms make of the ends
    ],
)
def test_the_words_of_a_spread(values, words):
    assert Spread(values).words == words


def test_a_spread_with_zeros_has_no_interval_with_negative_numbers_in_it():
    """As of ratios of slopes, of which one is flat; numbers of both signs have one."""
    assert Spread((0.0, 0.1, 0.5)).interval is None
    assert Spread((0.0, 0.1, 0.5)).words == "0.2 (0 to 0.5)"
    assert Spread((0.0, -0.1, 0.1)).interval is not None


def test_a_ratio_is_of_the_same_seeds():
    assert ratio({0: 20.0, 1: 90.0, 2: 5.0}, {0: 10.0, 1: 30.0, 3: 1.0}) == "2.449 (2 to 3)"
    assert ratio({0: math.inf}, {0: 10.0}) == ""
    assert ratio({0: 3.0}, {1: 10.0}) == ""
    assert ratio({0: 30.0, 1: math.inf}, {0: 10.0, 1: 10.0}) == "3, none in 1 of 2"


@pytest.mark.parametrize(
    ("answers", "kind", "words"),
    [
        ((), "not run", "not run"),
        ((None, None), "undecided", "undecided"),
        ((True,), "cannot be said", "one seed: holds"),
        ((False,), "cannot be said", "one seed: does not hold"),
        ((True, True), "cannot be said", "cannot be said: true in 2 of 2 seeds"),
        ((True, True, True), "holds", "holds in 3 of 3 seeds"),
        ((False, False, False), "does not hold", "does not hold: true in 0 of 3 seeds"),
        ((True, True, False), "cannot be said", "cannot be said: true in 2 of 3 seeds"),
        ((True,) * 9 + (False,), "holds", "holds in 9 of 10 seeds"),
        ((True,) * 8 + (False,) * 2, "cannot be said", "cannot be said: true in 8 of 10 seeds"),
        ((False,) * 9 + (True,), "does not hold", "does not hold: true in 1 of 10 seeds"),
        ((True, None, True), "cannot be said", "cannot be said: true in 2 of 2 seeds, undecided in 1"),
        ((True,) * 6 + (None,), "holds", "holds in 6 of 6 seeds, undecided in 1"),
        ((True,) * 3 + (None,), "cannot be said", "cannot be said: true in 3 of 3 seeds, undecided in 1"),
    ],
)
def test_verdicts(answers, kind, words):
    assert (Verdict(answers).kind, Verdict(answers).words) == (kind, words)


def test_a_mixed_verdict_needs_what_a_fair_coin_does_once_in_20_times():
    for n in range(2, 13):
        for k in range(n + 1):
            kind = Verdict((True,) * k + (False,) * (n - k)).kind
            clear = stats.binomtest(k, n).pvalue <= 0.05 or (k in (0, n) and n > 2)
            assert (kind != "cannot be said") == clear


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize(
    ("ratios", "decides"),
    [
        ((0.5, 0.51, 0.52), True),
        ((0.5, 0.9, 0.99), False),
        ((0.5, 0.9, math.inf), True),  # without an interval it does not count
        ((0.5, 0.6), False),  # two seeds are too few
        ((0.1, 0.9, 0.99, 0.999, 0.9999), False),
        ((0.1, 0.9, 0.99, 0.999, 0.9999, 0.99999), True),  # a fair coin does not do this
    ],
)
def test_a_few_seeds_that_agree_decide_nothing_if_the_ratio_may_be_1(wanted, ratios, decides):
    spread = Spread(tuple(ratio if wanted or math.isinf(ratio) else 1 / ratio for ratio in ratios))
    found = Verdict((wanted,) * len(ratios), spread)
    assert (found.held, found.decided) == (len(ratios) * wanted, len(ratios))
    assert found.kind == (("holds" if wanted else "does not hold") if decides else "cannot be said")
    if len(ratios) == 6:
        low, high = spread.interval
        assert low < 1 < high


def test_numbers_that_are_the_same_in_every_seed_are_not_smaller():
    """However many seeds: there is no spread that could hide a difference."""
    for seeds in (3, 5, 6):
        assert Verdict((False,) * seeds, Spread((1.0,) * seeds)).kind == "does not hold"


def test_a_verdict_of_a_claim_knows_the_ratio_of_its_numbers():
    claim = smaller("a is smaller", itemgetter(("s", "a")), itemgetter(("s", "b")), "s")
    close = {("s", "a"): {0: 1.0, 1: 1.8, 2: 1.98}, ("s", "b"): {0: 2.0, 1: 2.0, 2: 2.0}}
    assert small().verdict(claim, close).words == "cannot be said: true in 3 of 3 seeds"
    apart = {**close, ("s", "a"): {0: 1.0, 1: 1.02, 2: 1.04}}
    assert small().verdict(claim, apart).words == "holds in 3 of 3 seeds"
    assert small().verdict(claim._replace(ratio=None), close).words == "holds in 3 of 3 seeds"


def test_the_number_of_one_more_seed_has_an_interval_of_its_own():
    """Its variance is that of a seed and that of the mean: with the numbers -1, 0, 1 and Student's quantile of 2."""
    found, t = Spread((-1.0, 0.0, 1.0)), stats.t.ppf(0.975, 2)
    np.testing.assert_allclose(found.of_another, (-t * math.sqrt(4 / 3), t * math.sqrt(4 / 3)))
    np.testing.assert_allclose(found.interval, (-t * math.sqrt(1 / 3), t * math.sqrt(1 / 3)))
    logs = Spread(tuple(math.exp(x) for x in (-1.0, 0.0, 1.0)))
    np.testing.assert_allclose(logs.of_another, np.exp(found.of_another))
    assert Spread((1.0, 2.0)).of_another is Spread((1.0, 2.0, math.inf)).of_another is Spread(()).of_another is None


def test_a_claim_that_one_number_is_smaller_has_their_ratio():
    claim = smaller("a is smaller", itemgetter(("s", "a")), itemgetter(("s", "b")), "s")

    def judged(*pairs):
        a, b = ({seed: pair[i] for seed, pair in enumerate(pairs) if pair[i] is not None} for i in (0, 1))
        values = {("s", "a"): a, ("s", "b"): b}
        return small().verdict(claim, values).answers, small().ratio(claim, values)

    assert judged((1.0, 2.0), (1.0, 2.0), (1.0, 2.0)) == ((True,) * 3, "0.5 [0.5, 0.5]")
    assert judged((1.0, 2.0), (8.0, 4.0)) == ((True, False), "1 (0.5 to 2)")
    assert judged((1.0, 1.0)) == ((False,), "1")
    inf = math.inf
    assert judged((1.0, inf), (inf, 1.0), (inf, inf)) == ((True, False, None), "")
    assert judged((1.0, inf), (3.0, 4.0)) == ((True, True), "0.75, none in 1 of 2")
    assert judged((math.nan, 1.0), (1.0, math.nan)) == ((None, None), "")
    assert judged((-2.0, -1.0), (1.0, -1.0)) == ((True, False), "")  # what is below 0 has no ratio
    assert judged((0.0, 1.0), (0.0, 2.0)) == ((True, True), "0 (0 to 0)")
    assert judged((1.0, None), (1.0, 4.0)) == ((True,), "0.25")  # the first seed does not have both
    assert small().ratio(Claim("so it is", lambda f: True), {("s", "a"): {0: 1.0}}) == ""


# Searches, and recorded results.


def small(**fields):
    (_, e), *_ = find("speedup-figures").runs([0], 3)
    loss = Measure("train loss", 2.0, "rounds")
    lines = (
        Line("s", "a", ("a 0", "a 1"), loss, 10.0, "table 1"),
        Line("s", "b", "b", loss, 20.0, "table 1"),
        Line("end", "b", "b", Measure("train loss", last=1)),
    )
    claims = (Claim("a needs fewer rounds", lambda f: f["s", "a"] < f["s", "b"], "s"),)
    runs = {"a 0": e, "a 1": e, "b": e}
    return Reproduction("small", "A small one.", "A paper", runs, lines, claims, **fields)


def runs(seed, *, first=(9, 8, 1, 1), second=(9, 1, 1, 1), b=(9, 8, 8, 1)):
    whole = {"a 0": first, "a 1": second, "b": b}
    return [result(name, list(values), seed=seed) for name, values in whole.items()]


def test_of_a_search_the_best_counts_once_all_its_runs_have_finished():
    found = small()
    values = found.values(Study("", [*runs(0), *runs(1, second=(9, 8, 8, 8))]))
    assert values["s", "a"] == {0: 1.0, 1: 2.0}
    assert values["s", "b"] == {0: 3.0, 1: 3.0}
    assert ("s", "a") not in found.values(Study("", runs(0)[:1]))  # one of two points is no search
    rows = found.outcome(values)
    assert rows[1].ratio == "2.121 (1.5 to 3)"
    assert (rows[1].paper, rows[1].paper_ratio) == ("20", "2")
    assert rows[-1].verdict == "cannot be said: true in 2 of 2 seeds"


def test_a_recorded_result_is_read_as_it_was():
    found = small()
    made = Study("", [*runs(0), *runs(1, b=(9, 8, 7, 7))])
    kept = record(made, found, {"commit": "abc", "date": "2026-01-01", "processor": "x", "versions": {"jax": "1"}})
    assert kept.values["s", "b"] == {0: 3.0, 1: math.inf}
    text = kept.to_json(found)
    again = from_json(text, found)
    assert again == dataclasses.replace(kept, curves={})  # curves of searches are not kept
    assert json.loads(text)["figures"][1]["seeds"] == {"0": 3.0, "1": None}
    assert again.seeds == (0, 1)


def test_a_record_of_other_settings_is_not_taken_for_these():
    found = small()
    text = record(Study("", runs(0)), found, {}).to_json(found)
    assert len(from_json(text, found).values) == 3
    e = found.experiments["a 1"]
    changed = {**found.experiments, "a 1": dataclasses.replace(e, solver=dataclasses.replace(e.solver, lr=0.3))}
    kept = from_json(text, dataclasses.replace(found, experiments=changed))
    assert set(kept.values) == {("s", "b"), ("end", "b")}  # what a 1 is a part of is left out
    with pytest.raises(ValueError, match="the run 'a 1' has other settings than the reproduction has now"):
        record(Study("", runs(0)), dataclasses.replace(found, experiments=changed), {})


def test_a_record_of_a_figure_that_was_computed_otherwise_is_not_taken_for_this_one():
    def of(near):
        shares = (line._replace(combined=partial(fedopt.near_best, near=near)) for line in small().lines[:1])
        return dataclasses.replace(small(), lines=(*shares, *small().lines[1:]), claims=())

    text = record(Study("", runs(0)), of(0.05), {}).to_json(of(0.05))
    assert set(from_json(text, of(0.05)).values) == {("s", "a"), ("s", "b"), ("end", "b")}
    assert set(from_json(text, of(0.5)).values) == {("s", "b"), ("end", "b")}
    assert set(from_json(text, small()).values) == {("s", "b"), ("end", "b")}  # the best of the runs


def test_a_figure_of_fewer_seeds_says_so():
    found = small()
    rows = found.outcome(found.values(Study("", [*runs(0), *runs(1)[:1]])))
    assert rows[0].ours == "1"
    rows = found.outcome(found.values(Study("", [*runs(0), *runs(1)[2:]])))
    assert rows[0].ours == "1 (1 of 2 seeds)"


def test_a_record_of_other_figures_is_not_taken_for_these():
    found = small()
    text = record(Study("", runs(0)), found, {}).to_json(found)
    other = dataclasses.replace(found, lines=tuple(line._replace(measure=Measure("test loss")) for line in found.lines))
    assert from_json(text, other).values == {}


def test_curves_are_means_over_seeds_and_thin():
    many = [result("b", [float(t + seed) for t in range(1001)], seed=seed) for seed in (0, 2)]
    curve = mean_curve(many, "train loss")
    assert len(curve.rounds) <= POINTS
    assert (curve.rounds[0], curve.rounds[-1]) == (0, 1000)
    assert curve.values == pytest.approx([t + 1 for t in curve.rounds], rel=1e-3)


def test_curves_of_other_settings_are_not_read():
    r = dataclasses.replace(small(), lines=small().lines[1:])  # searches have no curves
    kept = record(Study("", [x for seed in (0, 1) for x in runs(seed)]), r, {})
    text = kept.to_json(r)
    assert from_json(text, r).curves == kept.curves
    assert kept.curves["b"]["train loss"].seeds == (0, 1)
    changed = text.replace('"settings": "', '"settings": "x')
    assert from_json(changed, r).curves == {}


def test_what_is_recorded_is_shown(tmp_path, monkeypatch):
    whole = small()
    monkeypatch.setitem(REPRODUCTIONS, "small", whole)
    monkeypatch.setattr(module, "PLACES", (tmp_path,))
    assert recorded_text("small") == ""
    kept = record(Study("", runs(0)), whole, {"commit": "abc", "date": "2026-01-01", "processor": "x", "versions": {}})
    (tmp_path / "small.json").write_text(kept.to_json(whole))
    words = recorded_text("small")
    assert "one seed: holds" in words
    assert "Recorded on 2026-01-01 at commit abc: one seed" in words
    assert "Again: fedloom reproduce 'small' --seeds 0," in words


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_what_is_recorded_in_the_repository_fits_its_reproduction(name):
    """Every figure has a line, every line that was recorded has its seeds, and the file says how it was made."""
    found = find(name)
    kept = module.recorded(found)
    if kept is None:
        assert entry(found).recorded == "-"
        return
    path = next(p / module.file_name(name) for p in module.PLACES if (p / module.file_name(name)).exists())
    plain = json.loads(path.read_text())
    assert len(kept.values) == len(plain["figures"]), "a figure was recorded that the reproduction does not have"
    assert {"commit", "date", "processor", "versions"} <= set(kept.made)
    assert kept.seconds > 0
    assert path.stat().st_size < 60_000
    assert set(kept.curves) <= set(found.experiments)
    newest, *earlier = kept.parts
    left = {(*key, seed) for key, of in kept.values.items() for seed in of}
    for part in earlier:
        lines = [(setting, m, seeds) for setting, of in part["figures"].items() for m, seeds in of.items()]
        own = {(setting, method, seed) for setting, method, seeds in lines for seed in seeds}
        assert own <= left, "a part names a figure that is not there, or that an earlier one has"
        assert part["seeds"] == sorted({seed for *_, seed in own})
        left -= own
    assert newest["seeds"] == sorted({seed for *_, seed in left})


def test_every_task_has_its_cost_noted():
    for r in REPRODUCTIONS.values():
        for e in r.experiments.values():
            assert e.task in TASKS
            assert any(e.task.startswith(start) for start in LOCAL)


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_estimates_are_near_what_recorded_runs_took(name):
    """Within a factor of 6 of what took ten minutes or more: processors differ by 3, and so does what else they did."""
    found = find(name)
    kept = module.recorded(found)
    assert 0 < seconds_of(found) < 1e8
    if kept is not None and kept.seconds > 600:
        done = sum(map(len, kept.seeds_of_runs.values())) / len(found.experiments)  # in seeds
        assert 1 / 6 < seconds_of(found) * done / kept.seconds < 6


def test_an_estimate_by_hand():
    """FedDyn's row of 10%: 10 of 100 devices, 50 epochs of 12 steps; then the test examples, with the mean's models."""
    row = find("feddyn-mnist-2nn-iid")
    e = dict(row.runs([0]))["feddyn"]
    step, passes, parameters = LOCAL["mnist-2nn"].step, 50 * 12, 784 * 200 + 200 + 200 * 200 + 200 + 200 * 10 + 10
    taking_part = 10 / (1 - 0.9**100)
    test = 2 * 100 * 12 * step / 3 / 6  # of the mean of last models and of the server's
    expected = taking_part * passes * step + test + 1e-8 * 100 * parameters
    assert seconds_of_round(e) == pytest.approx(expected)
    assert seconds_of_round(dataclasses.replace(e, evaluate_every=10)) < expected - 0.9 * test
    # A run ends at its higher target, for which the table has as many models, or twice as many as there are rounds.
    assert [rounds_of(row, m) for m in ("feddyn", "fedavg")] == [100, 588]
    assert rounds_of(find("feddyn-mnist-2nn-iid-1%"), "fedavg") == 644
    cifar = find("speedup-cifar10-resnet-digits10")  # of which MiB and seconds are printed, too
    assert [rounds_of(cifar, m) for m in ("scaffold", "fedavg")] == [56, 44]
    assert rounds_of(find("feddyn-table6"), "type1, loss 1.5717, feddyn 0") == 300  # a point of a search
    assert (
        rounds_of(find("speedup-figures"), next(iter(find("speedup-figures").experiments))) == 100
    )  # without a target


def test_the_commit_of_a_checkout():
    """As git itself says, and a + where files have been changed."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is not a checkout of git")
    run = partial(subprocess.run, cwd=ROOT, capture_output=True, text=True, check=True)
    changed = run(["git", "status", "--porcelain", "--untracked-files=no"]).stdout
    found = commit()
    assert run(["git", "rev-parse", "HEAD"]).stdout.startswith(found.removesuffix("+"))
    assert found.endswith("+") == bool(changed)


def test_runs_that_diverged_are_named():
    found = small()
    lost = [result("b", [9.0, 8.0], seed=seed, diverged=True, rounds=3) for seed in (0, 2)]
    kept = record(Study("", [*runs(0)[:2], *runs(2)[:2], *lost, *runs(1)]), found, {"commit": "abc"})
    assert kept.made["diverged"] == {"b": [0, 2]}
    assert "Diverged: b (seeds 0, 2)." in kept.how
    assert from_json(kept.to_json(found), found).made["diverged"] == {"b": [0, 2]}
    again = together(kept, record(Study("", runs(0)), found, {"commit": "abd"}))
    assert again.made["diverged"] == {"b": [2]}  # seed 0 was run again
    assert "Diverged: b (seed 2)." in again.how
    search = [result("a 0", [9.0], seed=3, diverged=True, rounds=3), *runs(3)[1:]]
    assert "diverged" not in record(Study("", search), found, {}).made  # a point of a search may
    assert "Diverged" not in record(Study("", runs(1)), found, {}).how


def test_only_what_is_not_recorded_is_run(tmp_path, monkeypatch):
    whole = small()
    monkeypatch.setitem(REPRODUCTIONS, "small", whole)
    monkeypatch.setattr(module, "PLACES", (tmp_path,))

    def left(*seeds, **more):
        return [(name, e.seed) for name, e in planned("small", seeds, missing=True, **more)]

    everything = [(name, seed) for name in ("a 0", "a 1", "b") for seed in (0, 1)]
    assert left(0, 1) == everything  # nothing is recorded
    kept = record(Study("", [*runs(0), *runs(1)[:2]]), whole, {})
    (tmp_path / "small.json").write_text(kept.to_json(whole))
    assert left(0, 1) == [("b", 1)]
    assert [(name, e.seed) for name, e in planned("small", (0, 1))] == everything
    assert left(0, 1, rounds=2) == everything  # what is recorded are longer runs
    with pytest.raises(ValueError, match="All runs of small are recorded for these seeds; ask for other seeds"):
        left(0)
    with pytest.raises(ValueError, match="The runs a\\* of small are recorded for these seeds"):
        left(0, 1, only=("a*",))


def test_some_runs_by_name(monkeypatch):
    monkeypatch.setitem(REPRODUCTIONS, "small", small())

    def chosen(*only):
        return [name for name, _ in planned("small", (0,), only=only)]

    assert chosen() == ["a 0", "a 1", "b"]
    assert chosen("b") == ["b"]
    assert chosen("b", "a 0") == ["a 0", "b"]  # in their order
    assert chosen("a*") == ["a 0", "a 1"]
    with pytest.raises(ValueError, match=r"small has no run 'c'\. Known: a 0, a 1, b\."):
        chosen("b", "c")
    with pytest.raises(ValueError, match="small has no run 'B'"):  # as the shell does on Linux
        chosen("B")


def test_some_runs_that_are_shorter_than_others_are_whole(tmp_path, monkeypatch):
    """Of one that has a third of the others' rounds, as a method has that sends more in a round."""
    found = small()
    shorter = dataclasses.replace(found.experiments["b"], rounds=1)
    found = dataclasses.replace(found, experiments={**found.experiments, "b": shorter})
    monkeypatch.setitem(REPRODUCTIONS, "small", found)
    monkeypatch.setattr(module, "PLACES", (tmp_path,))
    ((_, e),) = planned("small", (0,), only=("b",))
    done = dataclasses.replace(result("b", [9.0, 1.0], seed=0), experiment=e)
    kept = record(Study("", [done]), found, {})
    assert (kept.rounds, kept.made) == (3, {})
    both = together(record(Study("", runs(0)[:2]), found, {}), kept)
    assert both.values["s", "b"] == {0: 1.0}
    assert both.values["s", "a"] == {0: 1.0}
    (tmp_path / "small.json").write_text(kept.to_json(found))
    assert [run for run, _ in planned("small", (0,), missing=True)] == ["a 0", "a 1"]
    assert [run for run, _ in planned("small", (0, 1), missing=True, only=("b",))] == ["b"]  # of the other seed


def test_the_points_of_a_grid_are_recorded_as_means_over_seeds():
    found = small()
    grid = Grid("x", (1.0,), "y", (0.1, 0.2))
    found = dataclasses.replace(found, lines=(found.lines[0]._replace(grid=grid), *found.lines[1:]))
    kept = record(Study("", [*runs(0), *runs(1, first=(9, 1, 1, 1))]), found, {})
    assert kept.points == {("s", "a"): Points((1.5, 1.0), (0, 1))}  # rounds to 2: a 0 after 2 and 1, a 1 after 1
    assert from_json(kept.to_json(found), found).points == kept.points
    lost = record(Study("", runs(2, first=(9, 9, 9, 9))), found, {})
    assert math.isnan(lost.points["s", "a"].values[0])
    assert "null" in lost.to_json(found)
    both = together(kept, record(Study("", runs(2, first=(9, 9, 9, 1))), found, {}))
    assert both.points == {("s", "a"): Points((2.0, 1.0), (0, 1, 2))}  # (2 + 1 + 3) / 3
    half = together(kept, lost).points["s", "a"]
    assert math.isnan(half.values[0])
    assert half.values[1] == 1.0
    assert record(Study("", runs(0)[1:]), found, {}).points == {}  # not all points have been run
