"""The papers' pages: on a record made by hand, numbers and verdicts are on the page and in the picture."""

import dataclasses
import math

import pytest

from docs import causes, papers, reproductions
from docs.causes import CAUSES, NUMBERS, Cause
from docs.causes.why import beside, differs
from fedloom.experiments import experiment
from fedloom.reproductions import REPRODUCTIONS, feddyn, find, linear_speedup, recording
from fedloom.reproductions.recording import Recorded
from fedloom.reproductions.reproduction import Claim, Line, Reproduction
from fedloom.tasks import Measure
from tests.test_project import ROOT

TO_TARGET = Measure("train loss", 0.5, "rounds")
END = Measure("test accuracy", last=1, scale=100)


def below(f):
    return f["easy", "a"] < f["easy", "b"]


def made_up(name="made-up", measure=TO_TARGET, reported=(10.0, 25.0)):
    runs = {m: experiment("digits", "fedavg", rounds=20) for m in ("a", "b")}
    lines = [Line("easy", m, m, measure, value, "table 9") for m, value in zip(runs, reported, strict=True)]
    claim = Claim("a is ahead of b", below, "easy")
    return Reproduction(name, "Two methods.", "None", runs, tuple(lines), (claim,), "Nothing differs.", ("mnist",))


MADE = {"commit": "abc1234", "date": "2026-01-02", "processor": "x", "versions": {"jax": "1"}}


def kept(r, a, b, curves=None):
    values = {("easy", "a"): dict(enumerate(a)), ("easy", "b"): dict(enumerate(b))}
    return Recorded(r.name, values, curves or {}, 20, 600.0, MADE)


def paper_of(*reproductions):
    return papers.Paper("p", "A paper", "Made up.", "0000.00000", reproductions)


@pytest.fixture
def records(tmp_path, monkeypatch):
    """Writes records where they are looked for; there are no others."""
    monkeypatch.setattr(recording, "PLACES", (tmp_path,))

    def write(r, record):
        (tmp_path / recording.file_name(r.name)).write_text(record.to_json(r))

    return write


def cells(page, first):
    """The cells of the rows that begin with a cell."""
    rows = [[c.strip() for c in line.strip("|").split(" | ")] for line in page.splitlines() if line.startswith("|")]
    return [row for row in rows if row[0] == first]


def test_a_record_is_beside_the_paper_s_numbers_with_ratios_and_verdict(records):
    r = made_up()
    records(r, kept(r, (4.0, 4.0, 4.0), (8.0, 8.0, 8.0)))
    page = papers.page(paper_of(r))
    assert cells(page, "easy") == [
        ["easy", "a", "4 [4, 4]", "10", "", ""],
        ["easy", "b", "8 [8, 8]", "25", "2 [2, 2]", "2.5"],
    ]
    assert cells(page, "a is ahead of b") == [
        ["a is ahead of b", "[`made-up`](#made-up)", "holds in 3 of 3 seeds"],
        ["a is ahead of b", "easy", "holds in 3 of 3 seeds"],
    ]
    assert "fedloom reproduce 'made-up' --seeds 0,1,2" in page
    assert "10 minutes of runs" in page
    assert "Nothing differs." in page
    assert "issing" not in page
    assert "does not hold is not known" not in page


def test_what_is_not_recorded_is_missing(records):
    whole, other = made_up(), made_up("another-one")
    records(whole, kept(whole, (4.0,), (8.0,)))
    page = papers.page(paper_of(whole, other))
    before, after = page.split("## Missing")
    ((*_, data, published, time),) = cells(after, "`another-one`")
    assert (data, published) == ("`mnist`", "2")
    assert time.startswith("about ")
    assert "`made-up`" not in after
    assert ["a is ahead of b", "[`another-one`](#missing)", "not run yet"] in cells(before, "a is ahead of b")
    assert papers.pictures(paper_of(other)) == {}
    assert set(papers.pictures(paper_of(whole, other))) == {"made-up.svg"}


def test_verdicts_are_told_apart_by_setting():
    lines = tuple(Line(s, m, m, TO_TARGET) for s in ("s", "t", "u") for m in ("a", "b"))
    claims = tuple(Claim("ahead", lambda f, s=s: f[s, "a"] < f[s, "b"], s) for s in ("s", "t", "u"))
    r = dataclasses.replace(made_up(), lines=lines, claims=claims)
    ends = {("s", "a"): 1.0, ("s", "b"): 2.0, ("t", "a"): 1.0, ("t", "b"): 2.0, ("u", "a"): 3.0, ("u", "b"): 2.0}
    values = {key: dict.fromkeys(range(3), end) for key, end in ends.items()}
    assert papers.verdicts_of(r, "ahead", values) == [
        "holds in 3 of 3 seeds (s; t)",
        "does not hold: true in 0 of 3 seeds (u)",
    ]
    alike = dataclasses.replace(r, claims=claims[:2])
    assert papers.verdicts_of(alike, "ahead", values) == ["holds in 3 of 3 seeds (in each of 2 settings)"]
    assert papers.verdicts_of(dataclasses.replace(r, claims=claims[2:]), "ahead", {}) == ["not run"]


def test_without_published_numbers_methods_are_columns(records):
    r = made_up(reported=(None, None))
    records(r, kept(r, (4.0, 4.0, 4.0), (8.0, 8.0, 8.0)))
    page = papers.page(paper_of(r))
    assert cells(page, "setting") == [["setting", "a", "b"]]
    assert cells(page, "easy") == [["easy", "4 [4, 4]", "8 [8, 8]"]]


def test_a_cause_is_shown_only_if_the_record_supports_it(records, monkeypatch):
    r = made_up()
    cause = Cause("a is ahead of b", "It is slow.", lambda values: values["easy", "a"][0] > 100)
    monkeypatch.setitem(CAUSES, r.name, (cause,))
    records(r, kept(r, (30.0, 30.0, 30.0), (8.0, 8.0, 8.0)))
    page = papers.page(paper_of(r))
    assert "It is slow." not in page
    assert "“a is ahead of b” (easy): why this does not hold is not known." in page
    for undecided in ((130.0, 130.0), (130.0, 7.0, 7.0)):  # there is nothing to explain yet
        records(r, kept(r, undecided, (8.0, 8.0, 8.0)))
        page = papers.page(paper_of(r))
        assert "It is slow." not in page
        assert "not hold is not known" not in page
    records(r, kept(r, (130.0, 130.0, 7.0), (8.0, 8.0, 8.0)))  # most seeds are against it
    assert "“a is ahead of b” (cannot be said): It is slow." in papers.page(paper_of(r))
    records(r, kept(r, (130.0, 130.0, 130.0), (8.0, 8.0, 8.0)))
    page = papers.page(paper_of(r))
    assert "“a is ahead of b”: It is slow." in page
    assert "does not hold is not known" not in page
    assert causes.shown(r.name, {}) == []


@pytest.mark.parametrize("name", CAUSES)
def test_causes_explain_claims_of_registered_reproductions(name, records):
    """And none is shown where nothing is recorded."""
    claims = {claim.words for claim in find(name).claims}
    for cause in CAUSES[name]:
        assert cause.explains in claims | {NUMBERS}
        assert cause.words.endswith(".")
    assert causes.shown(name, {}) == []


def figures_of(name, value, seeds=3):
    """Some seeds of every figure of a reproduction."""
    return {(line.setting, line.method): {s: value(line) for s in range(seeds)} for line in find(name).lines}


@pytest.mark.parametrize("name", CAUSES)
def test_a_cause_is_about_figures_that_there_are(name):
    """A misspelt one would be a KeyError, which is taken for a figure that is not recorded."""
    made = figures_of(name, lambda line: 1.0)
    assert {cause.supported(made) for cause in CAUSES[name]} <= {True, False}


def test_the_cause_of_table_2_needs_both_measures():
    def reached(everywhere):
        made = figures_of("speedup-table2-lr", lambda line: math.inf if everywhere(line) else 3.0)
        for key, of in made.items():
            of[0] += key[1] == "fedavg" and "digits_2" in key[0]  # the initial model matters
        return made

    assert causes.shown("speedup-table2-lr", reached(lambda line: "all test" in line.setting))
    assert not causes.shown("speedup-table2-lr", reached(lambda line: False))
    assert not causes.shown("speedup-table2-lr", reached(lambda line: True))
    figures = reached(lambda line: "all test" in line.setting)
    of_table = {key: of for key, of in figures.items() if key[1] != linear_speedup.CLIPPED}
    never = {key: dict.fromkeys(of, math.inf) for key, of in figures.items() if key not in of_table}
    # It is about the table's methods, whatever stands beside them.
    assert causes.shown("speedup-table2-lr", of_table)
    assert causes.shown("speedup-table2-lr", {**of_table, **never})
    of_two_seeds = {key: {seed: v for seed, v in of.items() if seed < 2} for key, of in of_table.items()}
    assert not causes.shown("speedup-table2-lr", of_two_seeds)


def test_an_initial_model_is_no_cause_where_all_give_the_same_rounds():
    """Of digits_2, with FedAvg; the table has 14 and 11 rounds."""

    def shown(rounds):
        made = figures_of("speedup-table2-lr", lambda line: 5.0)
        for key in made:
            if key[1] == "fedavg" and "digits_2, n=100, rounds to 95% on the last" in key[0]:
                made[key] = dict(enumerate(rounds))
        return [cause.words.partition(" ")[0] for cause in causes.shown("speedup-table2-lr", made)]

    assert shown((7.0, 7.0, 7.0)) == ["Another"]
    assert shown((7.0, 7.0, 8.0)) == shown((11.0, 11.0, 11.0)) == []


def test_the_cause_of_feddane_s_figure_3_needs_the_means_to_matter():
    def losses(above):
        return figures_of(
            "feddane-figure3", lambda line: (2.0 if above(line.setting) else 0.5) if "feddane" in line.method else 1.0
        )

    def shown(above):
        return [cause.explains.split()[-1] for cause in causes.shown("feddane-figure3", losses(above))]

    assert shown(lambda s: s.endswith("plain means")) == ["FedAvg", "FedProx"]
    assert shown(lambda s: s == "Synthetic(0, 0), plain means") == ["FedProx"]  # FedAvg's is about (0.5, 0.5), too
    assert shown(lambda s: True) == shown(lambda s: False) == []


def test_the_causes_of_feddyn_s_table_6_need_all_methods_to_differ_alike():
    def shown(homogeneous=2.0, type2=0.5, type3=0.5, feddyn=1.0, type1=1.5, plain=None, base=20.0):
        """Which causes are shown; arguments are models in proportion to the table's, on type 1 to FedDyn's.

        `plain` are SCAFFOLD's by the plain mean in proportion to those by the weighted one, `base` is FedDyn's on
        type 1, where the table has 17.
        """
        times = {"homogeneous": homogeneous, "type2": type2, "type3": type3}
        made = figures_of("feddyn-table6", lambda line: line.reported * times.get(line.setting.split(",")[0], 1.0))
        for method in ("feddyn", "scaffold", "fedavg", "fedprox"):
            far = 1.0 if method == "feddyn" else type1
            made["type1, loss 1.5717", method] = {0: base, 1: base * far, 2: base * far}
        made["type3, loss 0.0854", "feddyn"] = {seed: 34.0 * feddyn for seed in range(3)}
        made["type3, loss 0.0854", "feddyn, plain mean"] = {seed: 34.0 * feddyn for seed in range(3)}
        del made["type3, loss 0.0854", "scaffold, plain mean"]
        if plain is not None:
            weighted = made["type3, loss 0.0854", "scaffold"]
            made["type3, loss 0.0854", "scaffold, plain mean"] = {seed: m * plain for seed, m in weighted.items()}
        names = {
            "On the": "homogeneous",
            "On type": "type 1",
            "The draw": "draw",
            "Type 2": "type 2",
            "Which mean": "mean",
        }
        return [names[" ".join(cause.words.split()[:2])] for cause in causes.shown("feddyn-table6", made)]

    all_ = ["homogeneous", "type 1", "type 2"]
    assert shown() == all_
    assert shown(homogeneous=1.0) == all_[1:]
    assert shown(homogeneous=math.inf) == all_  # never reached
    assert shown(type1=1.0) == ["homogeneous", "type 2"]  # never ahead
    assert shown(type1=0.8) == ["homogeneous", "type 2"]  # behind
    assert shown(type2=1.1) == shown(type3=1.1) == all_[:2]
    assert shown(feddyn=2.0) == all_
    assert shown(plain=1.05) == shown(plain=0.95) == [*all_, "mean"]
    assert shown(plain=1.2) == shown(plain=0.8) == shown(plain=math.inf) == all_
    assert shown(base=9.0) == ["homogeneous", "type 1", "draw", "type 2"]
    assert shown(base=9.0, homogeneous=0.9) == all_[1:]
    one = figures_of("feddyn-table6", lambda line: line.reported * 2)
    one["homogeneous, loss 0.0603", "fedavg"][1] = 100.0  # the table has 136
    del one["type3, loss 0.0854", "scaffold, plain mean"]
    assert causes.shown("feddyn-table6", one) == []


def test_the_cause_of_fedprox_s_lead_needs_it_without_the_square_only():
    name, setting = "feddyn-table6-draws", "homogeneous, loss 0.0603"

    def shown(linear=(20.0, 25.0, 30.0), neither=2):
        """Of three draws: the program's FedProx, and in how many neither FedAvg nor FedProx gets there."""
        made = figures_of(name, lambda line: line.reported)  # FedDyn 32, FedAvg 136, FedProx 49
        made[setting, feddyn.LINEAR] = dict(enumerate(linear))
        for method in ("fedavg", "fedprox"):
            made[setting, method] |= dict.fromkeys(range(neither), math.inf)
        return len(causes.shown(name, made))

    assert shown() == shown(neither=3) == 1
    assert shown(neither=1) == 0  # in two of three draws both get there
    assert shown(linear=(20.0, 25.0, 33.0)) == 0  # FedDyn is ahead in one
    assert shown(linear=(20.0, 25.0, math.inf)) == 0
    assert shown(linear=(150.0, 150.0, 150.0), neither=3) == 0


def test_the_cohorts_explain_a_row_of_1_percent_as_far_as_its_numbers_say(records, monkeypatch):
    """Our models in proportion to the table's, with independent cohorts and with those of the program."""
    name = "feddyn-mnist-2nn-dir0.6-1%"
    program = find(f"{name}-authors-lower")

    def shown(own, programs, seeds=3, method=None, lost=False):
        """`programs` of one method alone, if it is named, with the others at the table; `lost`: a seed in both."""
        made = figures_of(name, lambda line: line.reported * own)
        of = {method: programs} if method else dict.fromkeys(program.experiments, programs)
        other = figures_of(program.name, lambda line: line.reported * of.get(line.method, 1.0), seeds)
        if lost:
            for figures in (made, other):
                for (_, m), by_seed in figures.items():
                    by_seed |= {0: math.inf} if m == "scaffold" else {}
        records(program, Recorded(program.name, other, {}, 300, 60.0, MADE))
        return [cause.words.split(".")[0].split(":")[0] for cause in causes.shown(name, made)]

    assert shown(0.7, 1.05) == shown(0.7, 0.95) == ["The cohorts"]
    assert shown(0.7, 1.14) == ["The cohorts, for the most part"]
    assert shown(0.7, 1.2) == shown(0.7, math.inf) == ["Not the cohorts alone"]
    assert shown(1.0, 1.05) == shown(1.0, 1.2) == []  # nothing is to be explained
    assert shown(0.7, 1.05, seeds=2) == []
    assert shown(0.7, 1.05, method="fedavg") == ["The cohorts"]
    assert shown(0.7, 0.86, method="fedavg") == ["The cohorts, for the most part"]
    assert shown(0.7, 1.2, method="fedavg") == shown(0.95, 1.0, method="fedavg") == []
    assert shown(0.7, 1.14, lost=True) == []  # a method that does not get there in every seed has no distance
    monkeypatch.setattr(causes.feddyn, "recorded", lambda r: None)
    assert causes.shown(name, figures_of(name, lambda line: line.reported * 0.7)) == []


def test_a_target_that_is_missed_is_within_the_model_s_reach_if_it_gets_there_at_one_place(records):
    """The targets are 98.2% and 97.2%; one seed that misses one is enough, three are needed at one place."""
    name, reference = "feddyn-mnist-2nn-dir0.3", find("feddyn-mnist-centralised")

    def shown(best, missed=True):
        made = figures_of(name, lambda line: math.inf if missed and line.method == "fedavg" else 9.0, seeds=1)
        records(find(name), Recorded(name, made, {}, 1000, 60.0, MADE))
        keys = [(line.setting, line.method) for line in reference.lines]
        ends = {key: dict(enumerate(best)) for key in keys}
        records(reference, Recorded(reference.name, ends, {}, 150, 60.0, MADE))
        return len(causes.shown(name, made))

    assert shown((98.2, 98.3, 98.4)) == 1
    assert shown((98.1, 98.3, 98.4)) == shown((98.2, 98.3)) == shown((98.2, 98.3, 98.4), missed=False) == 0


@pytest.mark.parametrize(
    ("name", "method", "changed"),
    [
        ("feddyn-mnist-2nn-dir0.3-lower", "scaffold", feddyn.CLIPPED),
        ("feddyn-mnist-2nn-dir0.3-lower", "fedprox", feddyn.LINEAR),
        ("feddyn-mnist-2nn-dir0.6-100%-lower", "fedprox", feddyn.LINEAR),
        ("feddyn-mnist-2nn-iid-1%-authors-lower", "scaffold", feddyn.CLIPPED),
    ],
)
def test_the_cause_of_a_method_s_numbers_needs_the_program_s_alone_near_the_table(name, method, changed):
    def shown(papers, programs, last=1.0, seeds=3):
        """Models in proportion to the table's; those of the program's variant in the last seed once more so."""
        times = {method: papers, changed: programs}
        made = figures_of(name, lambda line: line.reported * times.get(line.method, 1.0))
        (key,) = (key for key in made if key[1] == changed)
        made[key][2] *= last
        made[key] = {seed: models for seed, models in made[key].items() if seed < seeds}
        return [
            "not explained" if "not explained" in cause.words else "explained" for cause in causes.shown(name, made)
        ]

    assert shown(1.4, 1.05) == shown(0.8, 0.95) == shown(math.inf, 1.0) == ["explained"]
    assert shown(1.4, 1.2) == shown(1.4, 0.8) == shown(1.4, 1.0, last=math.inf) == ["not explained"]
    assert shown(1.05, 1.05) == shown(1.05, 1.4) == []  # there is nothing to explain
    assert shown(1.12, 1.09) == shown(0.88, 0.91) == []  # on either side of the edge, and hardly apart
    assert shown(1.4, 1.0, seeds=2) == shown(1.4, 1.4, seeds=2) == []


def test_the_cause_of_diverged_runs_needs_the_clipped_ones_to_arrive_and_the_others_to_be_the_same():
    name = "speedup-table2-2nn"

    def shown(unclipped, clipped, of_iid=5.0):
        """Rounds of three seeds on digits_2, and with clipped steps on digits_10, where they are 5 without."""
        made = figures_of(name, lambda line: of_iid if line.method == linear_speedup.CLIPPED else 5.0)
        for setting, method in made:
            if "digits_2" in setting and method in ("scaffold", linear_speedup.CLIPPED):
                made[setting, method] = dict(enumerate(unclipped if method == "scaffold" else clipped))
        return len(causes.shown(name, made))

    never = math.inf
    assert shown((never,) * 3, (5.0, 6.0, 7.0)) == shown((never, 6.0, 7.0), (5.0, 6.0, 7.0)) == 1
    assert shown((5.0, 6.0, 7.0), (5.0, 6.0, 7.0)) == shown((never,) * 3, (never,) * 3) == 0
    assert shown((never,) * 3, (5.0, 6.0, never)) == 0
    assert shown((never, 6.0, 7.0), (5.0, 6.0, 8.0)) == 0  # it changes more than who gets there
    assert shown((never, 6.0, 7.0), (5.0, 6.0, 7.0), of_iid=4.0) == 0


def test_the_cause_of_fedsplit_act_s_failure_needs_it_to_learn_nothing():
    def shown(act, all_=97.0):
        made = figures_of("feddyn-figure2-mnist", lambda line: all_)
        for key in made:
            if key[1] == "fedsplit, act":
                made[key] = dict(enumerate(act))
        return len(causes.shown("feddyn-figure2-mnist", made))

    assert shown((10.0, -math.inf, 11.0)) == shown((-math.inf,) * 3) == 1
    assert shown((10.0, 95.0, 11.0)) == shown((10.0, 10.0, 11.0), all_=60.0) == shown((10.0, 11.0)) == 0


def test_the_cause_of_feddr_s_figure_2_needs_feddr_ahead_in_every_seed():
    made = figures_of("feddr-figure2", lambda line: 0.1 if line.method == "feddr, own" else 0.2)
    assert len(causes.shown("feddr-figure2", made)) == 1
    made["Synthetic(0, 0)", "feddr, own"][1] = 0.3
    assert causes.shown("feddr-figure2", made) == []


def test_the_cause_of_corollary_2_needs_half_a_slope_of_one_worker():
    def shown(one, noise=0.01):
        made = figures_of("speedup-corollary2", lambda line: one if line.method == "one worker" else -0.8)
        for of in made.values():
            of.update({seed: value + noise * (seed - 1) for seed, value in of.items()})
        return len(causes.shown("speedup-corollary2", made))

    assert shown(-0.4) == 1
    assert shown(-0.8) == shown(-0.1) == shown(-0.6) == 0
    assert shown(-0.4, noise=0.2) == 0  # the intervals are not apart


def test_the_causes_of_the_speedup_s_figures_need_small_gaps_and_an_effect_of_epochs_between_the_others():
    def shown(ten, epochs=0.1, workers=0.01, digits=0.3, seeds=3, of_one=0.1):
        """Losses: with 5 digits, 5 epochs and 10 workers 0.1; with 10 digits `ten` more; others by their effects."""

        def loss(line):
            kind = line.setting.split(",")[0]
            more = {"digits_1": digits, "digits_10": ten}.get(kind, 0.0)
            more += (of_one if kind == "digits_1" else epochs) * (line.method == "K=1")
            return 0.1 + more - workers * line.setting.endswith("n=100")

        made = figures_of("speedup-figures", loss)
        made["digits_5, n=10", "K=1"] = {seed: of for seed, of in made["digits_5, n=10", "K=1"].items() if seed < seeds}
        return [cause.explains for cause in causes.shown("speedup-figures", made)]

    both, slight = list(linear_speedup.ALIKE_DIGITS.values()), linear_speedup.SLIGHT
    assert shown(-0.04) == shown(0.04) == [*both, slight]
    assert shown(-0.05) == shown(0.05) == [slight]
    assert shown(0.04, workers=0.2) == shown(0.04, digits=0.05) == both
    assert shown(0.04, seeds=0) == both  # without K=1 nothing is known of epochs
    help_ = linear_speedup.EPOCHS_HELP
    assert shown(0.04, of_one=0.03) == shown(0.04, of_one=-0.03) == [*both, help_, slight]
    assert shown(0.04, of_one=-0.05) == [*both, slight]
    assert help_ not in shown(0.04, epochs=-0.1, of_one=0.03)  # they do not help with more digits either


def test_numbers_that_differ_without_a_cause_are_counted(records):
    """The paper has 10 and 25: of the first three seeds 10 is one more; 8 and 8.1 are far from 25."""
    r = made_up()
    records(r, kept(r, (9.0, 10.0, 11.5), (8.0, 8.0, 8.1)))
    assert "1 of 2 printed ones are outside of where one more seed of ours would be" in papers.page(paper_of(r))
    records(r, kept(r, (9.0, 10.0, 11.5), (8.0, 18.0, 35.0)))
    assert "printed ones" not in papers.page(paper_of(r))
    records(r, kept(r, (90.0, 90.0), (8.0, 8.0)))  # two seeds have no interval
    page = papers.page(paper_of(r))
    assert "one more seed" not in page
    assert "- The numbers: 2 of 2 printed ones cannot be judged" in page


def test_numbers_of_which_some_seeds_have_none_are_told_from_those_that_were_not_run(records):
    r = made_up()
    records(r, kept(r, (9.0, 10.0, math.inf), (8.0, 8.0, 8.1)))
    page = papers.page(paper_of(r))
    assert "1 of 1 printed ones are outside of where one more seed of ours would be" in page
    assert "- The numbers: 1 of 2 printed ones cannot be judged" in page
    records(r, kept(r, (9.0, 10.0, 11.5), ()))
    assert "printed ones" not in papers.page(paper_of(r))


def test_numbers_that_differ_are_counted_beside_a_cause_too(records, monkeypatch):
    r = made_up()
    monkeypatch.setitem(CAUSES, r.name, (Cause(NUMBERS, "It is slow.", lambda values: True),))
    records(r, kept(r, (9.0, 10.0, 11.5), (8.0, 8.0, 8.1)))
    page = papers.page(paper_of(r))
    assert "- The numbers: It is slow." in page
    assert "- The numbers: 1 of 2 printed ones are outside" in page
    assert "what of this is not explained above is not known" in page


@pytest.mark.parametrize(
    ("ours", "printed", "far"),
    [
        ((9.0, 10.0, 11.5), 10.0, False),
        ((9.0, 10.0, 11.5), 25.0, True),
        ((9.0, 10.0), 25.0, None),
        ((9.0, 10.0, math.inf), 25.0, None),  # one more seed may have a number, or not
        ((math.inf, math.inf, math.inf), 25.0, True),
        ((math.inf, math.inf, math.inf), math.inf, False),
        ((9.0, 10.0, math.inf), math.inf, None),
        ((9.0, 10.0, 11.5), math.inf, True),
        ((9.0, 10.0, 11.5), None, None),
        ((), 25.0, None),
    ],
)
def test_what_differs(ours, printed, far):
    assert differs(ours, printed) is far


def test_how_many_printed_numbers_are_near_ours():
    """The table has 10 and 25; means are geometric."""
    r = made_up()

    def words(a, b):
        return beside(r, kept(r, a, b).values)

    assert words((10.9,), (22.6,)) == "Our means are within 10% of 2 of 2 printed numbers, below 0 of them and above 0."
    assert words((11.1,), (22.4,)) == "Our means are within 10% of 0 of 2 printed numbers, below 1 of them and above 1."
    assert words((5.0, 20.0), (25.0, 25.0)).startswith("Our means are within 10% of 2 of 2 printed numbers")
    some = words((10.0, math.inf), (25.0, 25.0))
    assert some.startswith(
        "Our means are within 10% of 1 of 2 printed numbers, below 0 of them and above 0. The others"
    )
    assert beside(made_up(reported=(10.0, None)), kept(r, (10.0,), (25.0,)).values) == ""  # the table says one number


def test_a_question_that_the_record_has_no_figures_of_is_not_answered(records):
    r = dataclasses.replace(made_up(), claims=(Claim("a is ahead of b", below, "easy")._replace(ours=True),))
    records(r, dataclasses.replace(kept(r, (4.0,), ()), values={("easy", "a"): {0: 4.0}}))
    page = papers.page(paper_of(r))
    assert cells(page, "a is ahead of b") == [["a is ahead of b", "[`made-up`](#made-up)", "not run yet"]]
    assert "our question" not in page


def test_numbers_that_follow_from_others_are_not_counted(records):
    """Mebibytes and seconds of so many rounds, and what stands beside a number that another figure has."""
    r = made_up()
    a, b = r.lines
    far = (9.0, 10.0, 11.5), (8.0, 8.0, 8.1)
    of_mib = b._replace(measure=dataclasses.replace(b.measure, counted="MiB"))
    for other in (b._replace(combined=lambda x: x[0]), b._replace(beside=True), of_mib):
        changed = dataclasses.replace(r, lines=(a, other))
        records(changed, kept(changed, *far))
        assert "printed ones" not in papers.page(paper_of(changed))
        assert changed.published == (1 if other.beside else 2)


def test_questions_of_ours_are_not_claims_of_the_paper(records):
    r = made_up()
    ours = r.claims[0]._replace(words="b is behind a", ours=True)
    r = dataclasses.replace(r, claims=(*r.claims, ours))
    records(r, kept(r, (30.0, 30.0, 30.0), (8.0, 8.0, 8.0)))
    page = papers.page(paper_of(r))
    before, after = page.split("Questions of ours")
    assert "b is behind a" not in before
    assert "| question | experiment | verdict |" in after
    assert "| b is behind a (our question) | easy | does not hold" in after
    assert "“b is behind a”" not in after  # what the paper does not say needs no cause
    assert "“a is ahead of b” (easy): why this does not hold is not known." in after
    assert "Questions of ours" not in papers.page(paper_of(made_up()))


def test_many_methods_are_rows_and_what_was_not_run_is_a_sentence(records):
    r = made_up(reported=(None, None))
    names = [f"m{i}" for i in range(8)]
    lines = tuple(r.lines[0]._replace(method=m) for m in names)
    r = dataclasses.replace(r, lines=lines, claims=())
    values = {("easy", m): {0: 1.0 + i} for i, m in enumerate(names[:7])}
    records(r, Recorded(r.name, values, {}, 20, 600.0, MADE))
    page = papers.page(paper_of(r))
    assert "| method | easy |" in page
    assert "| m6 | 7 |" in page
    assert "Not run yet, everywhere or in part: m7." in page
    assert "| m7 |" not in page
    few = dataclasses.replace(r, lines=lines[:6])
    records(few, Recorded(r.name, values, {}, 20, 600.0, MADE))
    assert "| setting | m0 | m1 | m2 | m3 | m4 | m5 |" in papers.page(paper_of(few))


def test_the_cause_of_feddane_s_figure_1_needs_small_mus_to_be_worse():
    def losses(small, largest, exceptions=1):
        by_method = {"fedavg": 1.0, "fedprox": 0.5, "feddane, mu=1": largest}
        made = figures_of("feddane-figure1", lambda line: by_method.get(line.method, small))
        for seed in range(exceptions):
            made["Synthetic(1, 1), plain means", "feddane, mu=0.1"][seed] = 0.9
            made["Synthetic(1, 1), plain means", "feddane, mu=1"][seed] = 0.7
        return made

    assert causes.shown("feddane-figure1", losses(2.0, 0.7))
    assert not causes.shown("feddane-figure1", losses(2.0, 0.7, exceptions=2))
    assert not causes.shown("feddane-figure1", losses(2.0, 3.0))
    assert not causes.shown("feddane-figure1", losses(2.0, 0.7, exceptions=0))
    assert not causes.shown("feddane-figure1", losses(2.0, 1.2))
    assert not causes.shown("feddane-figure1", losses(0.8, 0.7))


def test_the_cause_of_feddane_s_variants_needs_them_between_feddane_and_fedprox():
    def words(feddane, slow, quick):
        by_method = {"feddane": feddane, "feddane, decay=0.98": slow, "feddane, decay=0.9": quick}
        made = figures_of("feddane-variants", lambda line: by_method.get(line.method, 1.0))
        return [cause.explains for cause in causes.shown("feddane-variants", made)]

    both = ["feddane, decay=0.98 ends below feddane", "feddane, decay=0.9 ends below feddane"]
    assert words(0.5, 0.8, 0.9) == both
    assert words(0.5, 0.8, 1.1) == both[:1]
    assert words(0.85, 0.8, 0.9) == both[1:]
    assert words(1.5, 0.8, 0.9) == []


def test_the_cause_of_stragglers_needs_the_proximal_term_to_help():
    def losses(fedprox, partial):
        by_method = {"fedavg": 1.0, "fedprox": fedprox, "fedprox, mu=0": partial}
        return figures_of("fedprox-stragglers", lambda line: by_method[line.method])

    assert causes.shown("fedprox-stragglers", losses(0.5, 1.5))
    assert not causes.shown("fedprox-stragglers", losses(0.5, 0.8))
    assert not causes.shown("fedprox-stragglers", losses(1.2, 1.5))


def test_pages_and_pictures_are_the_same_every_time(records):
    r = made_up()
    records(r, kept(r, (4.0, 5.0, 6.0), (8.0, 9.0, math.inf)))
    one = paper_of(r)
    assert papers.page(one) == papers.page(one)
    assert papers.pictures(one) == papers.pictures(one)
    assert all(len(text) < 20_000 for text in papers.pictures(one).values())


def test_every_reproduction_is_on_one_page():
    assert sorted(r.name for paper in papers.PAPERS for r in paper.reproductions) == sorted(REPRODUCTIONS)


@pytest.mark.parametrize("paper", papers.PAPERS, ids=lambda paper: paper.slug)
def test_the_pages_are_up_to_date(paper):
    assert (ROOT / "docs" / paper.page).read_text() == papers.page(paper), "run make docs"


def test_the_catalogue_has_a_claim_once_with_its_settings():
    lines = tuple(Line(s, m, m, TO_TARGET) for s in ("s", "t") for m in ("a", "b"))
    claims = (Claim("one", below, "s"), Claim("one", below, "t"), Claim("two", below, "t"), Claim("three", below))
    found = reproductions.claims(dataclasses.replace(made_up(), lines=lines, claims=claims))
    assert found == ["- one (in every setting).", "- two (t).", "- three."]
