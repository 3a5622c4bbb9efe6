"""Where a run is, between two exchanges, and how the journal keeps it."""

from typing import NamedTuple

import numpy as np

from fedloom.engines.clock import Clock
from fedloom.engines.records import Counters, Record
from fedloom.engines.run import Run
from fedloom.federation.wire import Frame, packed, shapes_of, unpacked


class State(NamedTuple):
    """Where a run is, between two exchanges."""

    t: int
    e: int
    active: bool  # has somebody counted in every exchange of the round so far?
    record: Record  # with the totals so far, and what the round has had since it began


def state_to_frame(state: State) -> Frame:
    """A state as the journal keeps it."""
    r = state.record
    assert r.clock is not None
    header = {
        "t": state.t,
        "e": state.e,
        "active": state.active,
        "counters": r.counters._asdict(),
        "cohort": [np.asarray(ids).tolist() for ids in r.cohort],
        "residual": r.residual,
        "unsolved": r.unsolved,
        "dropped": list(r.dropped),
        "clock": r.clock._asdict(),
        "traffic": list(r.traffic or (0, 0)),
    }
    return Frame(header, packed(r.server))


def state_from_frame(saved: Frame | None, run: Run) -> State:
    """What `state_to_frame` has kept; the beginning of the run, if nothing was."""
    if saved is None:
        return State(0, 0, True, run.start)
    h = saved.header
    down, up = h["traffic"]
    record = Record(
        round=h["t"],
        server=unpacked(saved.body, shapes_of(run.start.server)),
        clients={},
        counters=Counters(**h["counters"]),
        cohort=tuple(np.array(ids, int) for ids in h["cohort"]),
        residual=h["residual"],
        unsolved=h["unsolved"],
        dropped=tuple((t, k, name) for t, k, name in h["dropped"]),
        origin=run.start.origin,
        clock=Clock(**{**h["clock"], "staleness": tuple(h["clock"]["staleness"])}),
        traffic=(down, up),
    )
    return State(h["t"], h["e"], h["active"], record)
