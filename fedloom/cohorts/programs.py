"""Cohorts as the programs of several papers draw them."""

import itertools
from collections.abc import Callable

import numpy as np

from fedloom.cohorts.rules import Draw, OfSize, Rng, bernoulli, drawn
from fedloom.hyperparameters import frozen


@frozen
class seeded_by_round(OfSize):
    """`uniform` as several papers' programs draw: the same cohorts for every seed and every method.

    Those of FedProx, FedDANE, FedDR and linear speedup take NumPy's old generator, with the round, counted from 0, as
    its seed. A draw costs as much as the population.
    """

    def members(self, clients: int, rng: Rng, t: int) -> np.ndarray:
        return np.random.RandomState(t).choice(clients, self.m, replace=False)

    def last(self, ids: np.ndarray, clients: int, rng: Rng, t: int) -> int:
        order = self.members(clients, rng, t)
        return int(order[np.isin(order, ids)][-1])


@frozen
class seeded_bernoulli(bernoulli):
    """`bernoulli` as FedDyn's program draws: the same cohorts for every seed and every method.

    It takes NumPy's old generator, with the round, counted from 0, as its seed; and if nobody comes, with the next
    number, which is the next round's seed. So the cohort that follows on empty draws takes part several times in a row:
    with 100 devices and q = 0.01 more than a third of all rounds repeat the one before. A draw costs as much as the
    population.
    """

    def over(self, p: np.ndarray) -> Callable[[Rng, int], Draw]:
        def draw(rng: Rng, t: int) -> Draw:
            tries = (
                np.flatnonzero(np.random.RandomState(seed).uniform(size=len(p)) <= self.q)
                for seed in itertools.count(t)
            )
            ids = next(ids for ids in tries if len(ids))
            return drawn(ids, p[ids])

        return draw
