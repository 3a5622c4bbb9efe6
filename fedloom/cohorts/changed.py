"""Rules that change another rule's cohorts, and all rules by name."""

from collections.abc import Callable

import numpy as np

from fedloom.cohorts.programs import seeded_bernoulli, seeded_by_round
from fedloom.cohorts.rules import (
    CohortRule,
    Draw,
    Rng,
    bernoulli,
    by_weight,
    cyclic,
    everyone,
    scheduled,
    uniform,
    with_replacement,
)
from fedloom.hyperparameters import Domain, flag, frozen, interval, static

COHORTS: dict[str, type[CohortRule]] = {
    "everyone": everyone,
    "uniform": uniform,
    "seeded-by-round": seeded_by_round,
    "with-replacement": with_replacement,
    "by-weight": by_weight,
    "bernoulli": bernoulli,
    "seeded-bernoulli": seeded_bernoulli,
    "cyclic": cyclic,
    "scheduled": scheduled,
}
_rule = Domain("a cohort rule such as uniform(10)", lambda v: isinstance(v, CohortRule), COHORTS)


@frozen
class Changed(CohortRule):
    """Base of the rules that change another rule's cohorts."""

    of: CohortRule = static(_rule, "the rule that draws the cohort", default=uniform(10))

    @property
    def partial_work(self) -> bool:
        return self.of.partial_work

    def usual_weight(self, p: np.ndarray) -> np.ndarray:
        return self.of.usual_weight(p)

    def last(self, ids: np.ndarray, clients: int, rng: Rng, t: int) -> int:
        return self.of.last(ids, clients, rng, t)

    def room(self, clients: int) -> int:
        return self.of.room(clients)


@frozen
class stragglers(Changed):
    """Another rule's cohorts, in which the given share of the clients has time for a part of the work only.

    A straggler does the fraction U(0, 1] of its work: with E epochs, ceil(U * E) is uniform on 1..E, as in FedProx.
    With `drop` the stragglers are left out instead, as FedAvg does in that paper; at least one client stays.
    """

    share: float = static(interval(0, 1, "[]"), "share of the cohort that is slow", default=0.5)
    drop: bool = static(flag, "leave stragglers out instead of using their partial work", default=False)

    @property
    def partial_work(self) -> bool:
        return not self.drop or self.of.partial_work

    def over(self, p: np.ndarray) -> Callable[[Rng, int], Draw]:
        inner = self.of.over(p)

        def draw(rng: Rng, t: int) -> Draw:
            cohort = inner(rng, t)
            m = len(cohort.ids)
            slow = rng.permutation(m)[: m - round(m * (1 - self.share))]  # FedProx rounds the number of fast ones
            if self.drop:
                keep = np.setdiff1d(np.arange(m), slow[: m - 1])
                return Draw(cohort.ids[keep], cohort.weight[keep], cohort.work[keep])
            work = cohort.work.copy()
            work[slow] *= 1 - rng.random(len(slow))
            return cohort._replace(work=work)

        return draw


@frozen
class plain(Changed):
    """Another rule's cohorts with a plain mean: every client counts once, or as often as it was drawn.

    The objective keeps its weights p_k. FedDANE's boxes have the plain mean, also where everyone takes part.
    """

    def over(self, p: np.ndarray) -> Callable[[Rng, int], Draw]:
        inner, once = self.of.over(p), self.of.usual_weight(p)

        def draw(rng: Rng, t: int) -> Draw:
            cohort = inner(rng, t)
            usual = once[cohort.ids]
            return cohort._replace(weight=np.divide(cohort.weight, usual, out=np.ones(len(usual)), where=usual > 0))

        return draw

    def usual_weight(self, p: np.ndarray) -> np.ndarray:
        return np.ones(len(p))


COHORTS |= {"stragglers": stragglers, "plain": plain}  # here, since their own field is a rule by name
