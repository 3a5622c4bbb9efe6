"""The last member of a round's cohort, on whose test examples linear speedup's code evaluates the server's model."""

from collections.abc import Callable

import numpy as np

from fedloom.cohorts import CohortRule
from fedloom.engines.run import Run
from fedloom.systems import System


def last_member(rule: CohortRule, run: Run) -> Callable[[int], int]:
    """A function of t: the last member of the cohort of round t, or, before the first round, of the first cohort.

    The cohort is that of the round's last exchange, drawn again. Rules whose draws have no order give a random member,
    which the run's seed and the round determine.
    """

    def after(t: int) -> int:
        whole = run.system is None or (isinstance(run.system, System) and run.system.loses_nobody)
        if run.buffer is not None or not whole:
            raise ValueError(
                "evaluate: the last member of a round's cohort is known only in synchronous rounds in which everybody "
                "who is drawn replies; use engine = 'simulate', and a system without faults, absences and deadlines."
            )
        t, e = max(t - 1, 0), len(run.algorithm.exchanges) - 1
        rng = np.random.default_rng([run.seed, t, e, 1])  # the cohort itself is drawn without the 1
        return rule.last(run.cohorts(t)[e].ids, len(run.p), rng, t)

    return after
