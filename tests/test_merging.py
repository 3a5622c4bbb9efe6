"""Records of runs that were made apart, put together: which are of which part, and what of the old ones is left."""

import dataclasses
import math

import pytest

from fedloom.reproductions.merging import together
from fedloom.reproductions.recording import Curve, Points, Recorded, from_json
from fedloom.reproductions.reproduction import Line
from fedloom.tasks import Measure
from tests.test_spread import small

A, B, C = (("s", method) for method in "abc")
LOSS = Measure("train loss", last=1)
FOUND = dataclasses.replace(
    small(),
    experiments=dict.fromkeys("abc", small().experiments["b"]),
    lines=tuple(Line(*key, key[1], LOSS) for key in (A, B, C)),
)
RUNS = {key: (key[1],) for key in (A, B, C)}
FIRST, SECOND, THIRD = (
    {"date": f"d{i}", "commit": f"c{i}", "processor": "p1", "versions": {"jax": "1"}} for i in (1, 2, 3)
)


def made(values, made, seconds=60.0, points=None, **curves):
    """Of curves the values at two rounds, and the seeds."""
    of_runs = {run: {"train loss": Curve((0, 1), *curve)} for run, curve in curves.items()}
    return Recorded("small", values, of_runs, 3, seconds, made, points or {}, RUNS)


def parts(kept):
    return [(part["commit"], part["seeds"]) for part in kept.parts]


def curve(kept, run="a"):
    return kept.curves[run]["train loss"]


def test_seeds_that_were_run_apart_are_one_record():
    """By hand: seeds 0 and 1 first, then 1 again and 2, then 3; a mean of three curves has a third of each."""
    one = made({A: {0: 10.0, 1: 20.0}}, FIRST, a=((4.0, 1.0), (0, 1)))
    again = together(one, made({A: {1: 21.0, 2: 30.0}}, SECOND, 40.0, a=((9.0, 9.0), (1, 2))))
    assert again.values == {A: {0: 10.0, 1: 21.0, 2: 30.0}}
    assert parts(again) == [("c2", [1, 2]), ("c1", [0])]
    assert again.seconds == 70.0  # a seed of the first two is left
    assert curve(again) == Curve((0, 1), (9.0, 9.0), (1, 2))  # the old mean has seed 1, too
    newest = {**THIRD, "versions": {"jax": "2"}}
    last = together(again, made({A: {3: 1.0}}, newest, a=((3.0, 6.0), (3,))))
    assert parts(last) == [("c3", [3]), ("c2", [1, 2]), ("c1", [0])]
    assert curve(last) == Curve((0, 1), (7.0, 8.0), (1, 2, 3))
    assert "4 seeds" in last.how
    assert "Seeds 1, 2 were recorded on d2 at commit c2 (p1; jax 1). Seed 0 was recorded on d1" in last.how
    assert parts(together(one, made({A: {0: 1.0, 1: 2.0}}, SECOND))) == [("c2", [0, 1])]
    assert parts(together(one, made({A: {2: 5.0}}, FIRST))) == [("c1", [0, 1, 2])]  # made alike


def test_the_longer_runs_win():
    longer, shorter = (dataclasses.replace(made({A: {0: 1.0}}, FIRST), rounds=rounds) for rounds in (3, 2))
    assert together(shorter, longer) is longer
    with pytest.raises(ValueError, match="small: runs of 2 rounds cannot be put beside those of 3"):
        together(longer, shorter)


def test_methods_that_were_run_apart_are_one_record():
    """A seed may be in several parts, which then say so, each as long as it has a figure of it."""
    one = made({A: {0: 10.0, 1: 20.0}}, FIRST)
    more = together(one, made({B: {1: 5.0, 2: 6.0}}, SECOND))
    assert more.values == {A: {0: 10.0, 1: 20.0}, B: {1: 5.0, 2: 6.0}}
    assert parts(more) == [("c2", [1, 2]), ("c1", [0, 1])]
    assert more.seconds == 120.0
    assert "Seeds 0, 1 were in part recorded on d1 at commit c1" in more.how
    half = together(more, made({B: {1: 7.0}}, THIRD))
    assert half.values == {A: {0: 10.0, 1: 20.0}, B: {1: 7.0, 2: 6.0}}
    assert parts(half) == [("c3", [1]), ("c2", [2]), ("c1", [0, 1])]
    assert "Seed 2 was recorded on d2 at commit c2" in half.how
    assert "Seeds 0, 1 were in part recorded on d1 at commit c1" in half.how
    last = together(more, made({A: {1: 7.0}, B: {1: 8.0}}, THIRD))
    assert last.values == {A: {0: 10.0, 1: 7.0}, B: {1: 8.0, 2: 6.0}}
    assert parts(last) == [("c3", [1]), ("c2", [2]), ("c1", [0])]
    assert "in part" not in last.how
    again = together(half, made({C: {0: 1.0}}, THIRD))  # made as the newest part was
    assert parts(again) == [("c3", [0, 1]), ("c2", [2]), ("c1", [0, 1])]


def test_a_part_goes_with_its_last_figure():
    """b is run again by c2 and then by c3: nothing of c2 is left, also if the file was written and read in between."""
    one = made({A: {0: 1.0, 1: 1.0}, B: {0: 2.0, 1: 2.0}}, FIRST)
    two = together(one, made({B: {0: 3.0, 1: 3.0}}, SECOND))
    assert from_json(two.to_json(FOUND), FOUND) == two
    three = together(from_json(two.to_json(FOUND), FOUND), made({B: {0: 4.0, 1: 4.0}}, THIRD))
    assert parts(three) == [("c3", [0, 1]), ("c1", [0, 1])]
    assert three.made["earlier"][0]["figures"] == {"s": {"a": [0, 1]}}
    assert "c2" not in three.how
    assert parts(together(three, made({A: {0: 5.0, 1: 5.0}}, SECOND))) == [("c2", [0, 1]), ("c3", [0, 1])]


def test_a_part_that_does_not_name_its_figures_is_refused():
    """Of seed 0 both parts may have made a: which one is left when a is run again could only be guessed."""
    earlier = {"seeds": [0, 1], **FIRST}
    old = made({A: {0: 1.0}, B: {0: 2.0, 1: 2.0}}, {**SECOND, "newest seeds": [0, 1], "earlier": [earlier]})
    with pytest.raises(ValueError, match="small: the part recorded at commit c1 does not name its figures"):
        together(old, made({B: {0: 3.0, 1: 3.0}}, THIRD))


def test_the_command_runs_what_is_recorded_and_nothing_else():
    """A line for all runs if they have the same seeds, else one for those of each; none for what was not run."""

    def commands(values, **how):
        return made(values, {**FIRST, **how}).command.splitlines()

    seeds = {0: 1.0, 1: 1.0}
    assert commands({A: seeds, B: seeds, C: seeds}) == ["fedloom reproduce 'small' --seeds 0,1"]
    assert commands({key: {4: 1.0} for key in RUNS}, **{"asked rounds": 2}) == [
        "fedloom reproduce 'small' --seeds 4, --rounds 2"
    ]
    assert commands({A: seeds, B: {0: 1.0, 2: 1.0}}) == [
        "fedloom reproduce 'small' --only a --seeds 0,1",
        "fedloom reproduce 'small' --only b --seeds 0,2",
    ]
    assert commands({A: seeds, C: seeds}) == ["fedloom reproduce 'small' --only a --only c --seeds 0,1"]
    named = dataclasses.replace(made({A: seeds}, FIRST), runs={A: ("fedprox, mu=1",), B: ("b",)})
    assert named.command == "fedloom reproduce 'small' --only 'fedprox, mu=1' --seeds 0,1"


def test_a_run_that_reached_its_target_before_it_diverged_is_told_apart():
    """Otherwise a figure would stand beside the word "diverged" without a reason."""

    def words(seeds, **values):
        of = {key: dict(enumerate(v)) for key, v in zip((A, B), values.values(), strict=False)}
        return made(of, {**FIRST, "diverged": {"a": seeds}}).how.partition("Diverged: ")[2]

    assert words([0, 1], a=(math.inf, math.inf)) == "a (seeds 0, 1)."
    assert words([0, 1], a=(7.0, 8.0)) == "a (seeds 0, 1 after reaching a target)."
    assert words([0, 1], a=(7.0, math.inf)) == "a (seed 1; seed 0 after reaching a target)."
    assert words([0], a=(math.inf,), b=(7.0,)) == "a (seed 0)."  # another run reached it


def test_a_run_that_diverged_counts_until_it_is_run_again():
    values = {A: {0: 1.0, 1: 1.0}, B: {0: 2.0, 1: 2.0}}
    old = made(values, {**FIRST, "diverged": {"b": [0]}})

    def diverged(values, **of):
        return together(old, made(values, {**SECOND, **of})).made.get("diverged")

    assert diverged({B: {0: 3.0, 1: 3.0}}) is None  # though what a gave for seed 0 is left
    assert diverged({B: {1: 3.0}}) == diverged({A: {0: 1.0, 1: 1.0}}) == {"b": [0]}
    assert diverged({B: {1: 3.0}}, diverged={"b": [1]}) == {"b": [0, 1]}
    assert diverged(values, diverged={"a": [1]}) == {"a": [1]}


def test_a_mean_goes_with_a_seed_of_it_that_is_run_again():
    """Its figure is the new one, which a curve with the old run in it would contradict."""
    seeds = (0, 1, 2)
    means = (2.0, 2.0), seeds
    old = made(
        {A: dict.fromkeys(seeds, 2.0), B: dict.fromkeys(seeds, 2.0)},
        FIRST,
        a=means,
        b=means,
        points={A: Points(*means)},
    )
    new = (5.0, 5.0), (1,)
    both = together(old, made({A: {1: 5.0}}, SECOND, a=new, points={A: Points(*new)}))
    assert both.values[A] == {0: 2.0, 1: 5.0, 2: 2.0}
    assert curve(both) == Curve((0, 1), *new)
    assert both.points == {A: Points(*new)}
    assert curve(both, "b") == Curve((0, 1), *means)  # which was not run again
    lost = together(old, made({A: {1: 9.0}}, {**SECOND, "diverged": {"a": [1]}}))
    assert set(lost.curves) == {"b"}  # a run that diverged has no curve
    half = together(old, made({A: {1: 9.0, 3: 5.0}}, {**SECOND, "diverged": {"a": [1]}}, a=((5.0, 5.0), (3,))))
    assert curve(half) == Curve((0, 1), (5.0, 5.0), (3,))


def test_the_seconds_of_what_is_replaced_do_not_count():
    """Each of two methods takes 30 seconds: both together 60, however often one of them is run again."""
    kept = made({A: {0: 1.0, 1: 1.0}, B: {0: 2.0, 1: 2.0}}, FIRST, 60.0)
    for _ in range(3):
        kept = together(kept, made({B: {0: 3.0, 1: 3.0}}, SECOND, 30.0))
        assert kept.seconds == 60.0
    assert together(kept, made({A: {1: 1.0}}, SECOND, 15.0)).seconds == 60.0
    assert together(kept, made({C: {1: 1.0}}, SECOND, 15.0)).seconds == 75.0


def test_of_curves_of_other_rounds_that_of_more_seeds_is_left():
    """Runs that end at their targets have other rounds, of which there is no mean; the figures have all seeds."""

    def of(seeds, rounds, commit):
        found = made({A: dict.fromkeys(seeds, 1.0)}, commit)
        curve = Curve(tuple(range(rounds)), (5.0,) * rounds, tuple(seeds))
        return dataclasses.replace(found, curves={"a": {"train loss": curve}})

    first, second = of((0, 1), 2, FIRST), of((2,), 3, SECOND)
    assert together(first, second).values == together(second, first).values == {A: dict.fromkeys((0, 1, 2), 1.0)}
    assert curve(together(first, second)).seeds == curve(together(second, first)).seeds == (0, 1)
    assert curve(together(first, of((2, 3), 3, SECOND))).seeds == (2, 3)  # as many, and newer
