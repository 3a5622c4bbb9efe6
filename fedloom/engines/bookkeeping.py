"""From what a compiled program reports to the next record: totals, residuals, who was dropped, who has a memory."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedloom.cohorts import Draw
from fedloom.engines.aggregate import ClientReport, Outcome
from fedloom.engines.memory_store import MemoryStore
from fedloom.engines.packing import Packing
from fedloom.engines.records import Record, Sizes, client_not_finite, server_not_finite
from fedloom.engines.run import Run

Draws = list[list[Draw]]  # [rounds][exchanges]


def with_reports(run: Run, record: Record, t: int, draws: Draws, outcomes: tuple[Outcome, ...]) -> Record:
    """The record with what clients reported in rounds t, t + 1, ...; raises if something is not finite that must be."""
    n = len(draws)
    if not all(o.server_finite[:n].all() and o.clients.finite[:n].all() for o in outcomes):
        record = record._replace(dropped=record.dropped + tuple(_dropped(run, t, draws, outcomes)))
    residual, unsolved, gradients = record.residual, record.unsolved, 0
    for outcome in outcomes:
        report = ClientReport(*(x[:n] for x in outcome.clients))  # beyond a cohort it is empty: that adds nothing
        worst = float(np.max(report.residual))
        if worst > -np.inf:
            residual = worst if residual is None else max(residual, worst)
        unsolved += int(np.sum(report.unsolved))
        gradients += int(np.sum(report.gradients, dtype=np.int64))
    return record._replace(residual=residual, unsolved=unsolved, counters=record.counters.after_gradients(gradients))


def with_rounds(run: Run, record: Record, t: int, draws: Draws, outcomes: tuple[Outcome, ...], sizes: Sizes) -> Record:
    """The record with all totals of the synchronous rounds t, t + 1, ..."""
    record = with_reports(run, record, t, draws, outcomes)
    counters, n = record.counters, len(draws)
    for e, (down, up) in enumerate(sizes):
        m = sum(len(cohorts[e].ids) for cohorts in draws)
        counters = counters.after_exchanges(n, m, m * down, m * up)
    return record._replace(counters=counters.after_rounds(n))


def remember(store: MemoryStore, draws: Draws, outcomes: tuple[Outcome, ...]) -> None:
    """Note who has a memory now: everybody whose reply counted."""
    for e, outcome in enumerate(outcomes):
        for i, cohorts in enumerate(draws):
            if outcome.counted[i]:
                ids = cohorts[e].ids
                store.known[ids[outcome.clients.finite[i, : len(ids)] & (cohorts[e].weight > 0)]] = True


def of_own_devices(outcomes: tuple[Outcome, ...], packings: tuple[Packing, ...]) -> tuple[Outcome, ...]:
    """With what each client's own device reports of it."""

    def chosen(x: Any, owner: Any) -> np.ndarray:
        return x if x.ndim == owner.ndim else np.take_along_axis(x, owner[None], axis=0)[0]

    return tuple(
        o._replace(clients=ClientReport(*(chosen(x, p.owner) for x in o.clients)))
        for o, p in zip(outcomes, packings, strict=True)
    )


def _dropped(run: Run, t: int, draws: Draws, outcomes: tuple[Outcome, ...]) -> Iterator[tuple[int, int, str]]:
    """Who was left out as not finite; raises if that is not wanted, or if the server itself is not finite."""
    for i, cohorts in enumerate(draws):
        for exchange, draw, outcome in zip(run.algorithm.exchanges, cohorts, outcomes, strict=True):
            for k in draw.ids[~outcome.clients.finite[i, : len(draw.ids)]].tolist():
                if not run.drop:
                    raise client_not_finite(t + i, k, exchange.name)
                yield t + i + 1, k, exchange.name
            if not outcome.server_finite[i]:
                raise server_not_finite(t + i, exchange.name)
