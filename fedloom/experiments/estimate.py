"""How long a study will take: a few rounds of each method, in memory."""

import dataclasses
import itertools
import time

from fedloom.experiments.result import Row
from fedloom.experiments.runs import finish
from fedloom.experiments.study_file import Runs

TRIED = 3  # rounds, each followed by an evaluation; the first is spent on compiling


def seconds_of(runs: Runs) -> float:
    """About how many seconds the runs take one after the other.

    Of each method the first run is tried, for a few rounds. The other seeds share its compiled programs where their
    data have the same shapes, which is assumed.
    """
    total = 0.0
    for name in dict.fromkeys(name for name, _ in runs):
        own = [e for other, e in runs if other == name]
        tried = dataclasses.replace(own[0], rounds=min(own[0].rounds, TRIED), evaluate_every=1)
        checked = tried.check()
        times = [time.monotonic()]

        def watch(row: Row, times: list[float] = times) -> None:
            times.append(time.monotonic())

        finish(tried, None, watch=[watch], checked=checked)
        before = time.monotonic()
        checked.evaluation.of(checked.loaded.w)
        evaluation = time.monotonic() - before
        steps = [later - earlier for earlier, later in itertools.pairwise(times[2:])]
        both = min(steps, default=times[-1] - times[0])  # a round and an evaluation
        compiling = max(times[2] - times[0] - 2 * both, 0.0) if len(times) > 2 else 0.0
        of_all = [e.rounds * max(both - evaluation, 0.0) + e.rounds / e.evaluate_every * evaluation for e in own]
        total += compiling + sum(of_all)
    return total
