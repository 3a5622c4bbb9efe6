"""Cohorts of a federation: drawn from the clients that are there, by the rule that every engine has."""

import dataclasses

import numpy as np

from fedloom.cohorts import Changed, CohortRule, Draw, OfSize, everyone, scheduled
from fedloom.engines.run import Run
from fedloom.federation.wire import Frame


def drawn(run: Run, rule: CohortRule, t: int, e: int, ready: set[int]) -> Draw:
    """The cohort of an exchange, from the clients that are there."""
    whole = len(run.p)
    if len(ready) == whole or run.algorithm.needs_everyone:
        return run.drawn(t, e)
    if _is_scheduled(rule):
        return _among(run.drawn(t, e), ready)
    ids = np.array(sorted(ready))
    p = run.p[ids]
    draw = _fitting(rule, len(ids)).over(p / p.sum())(np.random.default_rng([run.seed, t, e]), t)
    return draw._replace(ids=ids[draw.ids], weight=draw.weight)


def _is_scheduled(rule: CohortRule) -> bool:
    return isinstance(rule, scheduled) or (isinstance(rule, Changed) and _is_scheduled(rule.of))


def _among(draw: Draw, ready: set[int]) -> Draw:
    here = np.isin(draw.ids, sorted(ready))
    return Draw(draw.ids[here], draw.weight[here], draw.work[here])


def _fitting(rule: CohortRule, clients: int) -> CohortRule:
    """The rule for a population in which a cohort may be everybody."""
    if isinstance(rule, Changed):
        return dataclasses.replace(rule, of=_fitting(rule.of, clients))
    if isinstance(rule, OfSize) and rule.m > clients:
        return everyone()
    return rule


def draw_to_frame(draw: Draw, t: int, e: int) -> Frame:
    """A draw as the journal keeps it."""
    numbers = {"ids": draw.ids.tolist(), "weight": draw.weight.tolist(), "work": draw.work.tolist()}
    return Frame({"t": t, "e": e, **numbers})


def draw_from_frame(frame: Frame) -> Draw:
    """What `draw_to_frame` has kept."""
    h = frame.header
    return Draw(np.array(h["ids"], int), np.array(h["weight"], float), np.array(h["work"], float))
