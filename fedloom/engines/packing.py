"""Who runs where and when: the clients of a cohort packed into lanes.

A lane runs one client after another, and lanes run side by side: `lanes` of them in one vectorised program on each of
`devices` devices. All lanes step together. When a client ends, its lane continues with the next one at once, so lanes
are filled longest client first, each into the lane that is free first, and little time is lost at the end.

A lane that waits for others is computed all the same. So clients that would keep the others waiting, and those that are
too few to fill the lanes, run alone afterwards, one after another.
"""

import heapq
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fedloom.cohorts import Draw
from fedloom.engines.costs import LocalSteps
from fedloom.engines.plan import Plan
from fedloom.engines.run import Run
from fedloom.engines.split_solve import splits
from fedloom.engines.trees import Array
from fedloom.systems import System


class Packing(NamedTuple):
    """The course of one exchange, for each device d. Clients are named by their place in the cohort; `room`: nobody.

    A device runs steps[d, 0] steps of all its lanes, then the clients ends[d, 0] end and begins[d, 0] begin in their
    lanes, lane[d, 0]; then steps[d, 1] steps, and so on, events[d] times. Before, first[d] begin. Afterwards alone[d]
    run one after another, for alone_steps[d] steps each.
    """

    owner: Array  # [room]: the device of each client
    first: Array  # [devices, lanes]
    events: Array  # [devices]
    steps: Array  # [devices, room for events]
    lane: Array  # [devices, room for events, handed over at once]
    ends: Array  # [devices, room for events, handed over at once]
    begins: Array  # [devices, room for events, handed over at once]
    alone: Array  # [devices, room for clients alone]
    alone_steps: Array  # [devices, room for clients alone]


WAITING = 0.08  # steps of lanes that wait, over all steps: more, and somebody runs alone
ROUNDS_SEEN = 4  # to see what cohorts are like
ALONE = 0.5  # the time of a client's step alone, about, if one of all lanes takes 1


def pack(
    steps: np.ndarray,
    lanes: int,
    devices: int,
    room: int,
    together: bool,
    alone: bool = False,
    sizes: np.ndarray | None = None,
) -> Packing:
    """Lanes for clients of so many steps, in a cohort with room for `room`.

    together: all clients take equally many steps, so that all lanes change clients at once.
    alone: clients may run alone.
    sizes: by which clients that change together are shared out fairly among devices.
    """
    order = np.argsort(-(steps if sizes is None else sizes), kind="stable")  # longest first
    in_lanes = _together if together else _longest_first
    for few in _how_many_alone(steps[order], lanes, devices, together) if alone else [0]:
        packing = _blank(lanes, devices, room, together, alone)
        loads = _alone(packing, steps, order[:few])
        in_lanes(packing, steps, order[few:], loads)
        if not alone or _waiting(packing, steps) <= WAITING * steps.sum():
            break
    return packing


def _blank(lanes: int, devices: int, room: int, together: bool, alone: bool) -> Packing:
    events, at_once = (-(-room // (devices * lanes)), lanes) if together else (room, 1)
    shape, alone_shape = (devices, events, at_once), (devices, room if alone else 0)
    return Packing(
        owner=np.zeros(room, np.int32),
        first=np.full((devices, lanes), room, np.int32),
        events=np.zeros(devices, np.int32),
        steps=np.zeros((devices, events), np.int32),
        lane=np.zeros(shape, np.int32),
        ends=np.full(shape, room, np.int32),
        begins=np.full(shape, room, np.int32),
        alone=np.full(alone_shape, room, np.int32),
        alone_steps=np.zeros(alone_shape, np.int32),
    )


def _how_many_alone(steps: np.ndarray, lanes: int, devices: int, together: bool) -> Iterator[int]:
    """Of clients in this order, how many of the first might run alone: fewer would leave lanes waiting for sure."""
    if together:
        yield from (0, len(steps) % (lanes * devices))
    else:
        left = np.cumsum(steps[::-1])[::-1]  # of this client and those after it
        yield from np.flatnonzero(lanes * steps - left <= WAITING * steps.sum()).tolist()
    yield len(steps)


def _alone(packing: Packing, steps: np.ndarray, clients: np.ndarray) -> list[int]:
    """Put the clients on devices, alone; returns the steps of each device."""
    devices = len(packing.events)
    loads, n = [0] * devices, [0] * devices
    for i in clients.tolist():
        d = loads.index(min(loads))
        packing.owner[i], packing.alone[d, n[d]], packing.alone_steps[d, n[d]] = d, i, steps[i]
        loads[d] += int(steps[i])
        n[d] += 1
    return loads


def _together(packing: Packing, steps: np.ndarray, clients: np.ndarray, loads: list[int]) -> None:
    devices, waves, lanes = packing.ends.shape
    m, room = len(clients), len(packing.owner)
    # Dealt to the devices in turn, every second time around in reverse: no device always has the larger one.
    dealt = np.full(waves * lanes * devices, room, np.int32)
    dealt[:m] = clients
    around = dealt.reshape(waves * lanes, devices)
    around[1::2] = around[1::2, ::-1]
    of = around.reshape(waves, lanes, devices).transpose(2, 0, 1)
    for d in range(devices):
        packing.owner[of[d][of[d] < room]] = d
    packing.first[:] = of[:, 0]
    packing.events[:] = np.sum(np.any(of < room, axis=2), axis=1)
    packing.steps[:] = np.where(np.any(of < room, axis=2), steps.max(initial=0), 0)
    packing.lane[:] = np.arange(lanes)
    packing.ends[:] = of
    packing.begins[:, :-1] = of[:, 1:]


def _longest_first(packing: Packing, steps: np.ndarray, clients: np.ndarray, loads: list[int]) -> None:
    (devices, lanes), room = packing.first.shape, len(packing.owner)
    queues: list[list[tuple[int, int]]] = [[] for _ in range(lanes * devices)]  # of each lane: (when it ends, client)
    starts = [int(ALONE * load) for load in loads]
    free = [(starts[q % devices], q) for q in range(lanes * devices)]
    heapq.heapify(free)
    for i in clients.tolist():
        time, q = heapq.heappop(free)
        time += int(steps[i])
        queues[q].append((time, i))
        heapq.heappush(free, (time, q))
    for d in range(devices):
        endings = []
        for lane, queue in enumerate(queues[d::devices]):
            own = [i for _, i in queue]
            packing.owner[own] = d
            if own:
                packing.first[d, lane] = own[0]
            following = [*own[1:], room]
            endings += [(time, lane, i, following[j]) for j, (time, i) in enumerate(queue)]
        endings.sort(key=lambda ending: ending[:2])  # by time and lane; in a lane they are in order
        n = packing.events[d] = len(endings)
        if n:
            time, packing.lane[d, :n, 0], packing.ends[d, :n, 0], packing.begins[d, :n, 0] = np.array(endings).T
            packing.steps[d, :n] = np.diff(time, prepend=starts[d])


def _waiting(packing: Packing, steps: np.ndarray) -> int:
    """Steps that lanes compute for nobody."""
    return packing.first.shape[1] * int(packing.steps.sum()) + int(packing.alone_steps.sum()) - int(steps.sum())


def duration(packing: Packing) -> float:
    """About how long it takes, if a step of several lanes takes 1."""
    step = ALONE if packing.first.shape[1] == 1 else 1.0
    return float(np.max(step * packing.steps.sum(1) + ALONE * packing.alone_steps.sum(1)))


def wasted(packing: Packing, steps: np.ndarray) -> float:
    """The share of steps that no client needs."""
    waiting = _waiting(packing, steps)
    return waiting / (waiting + int(steps.sum())) if waiting else 0.0


class Packer:
    """Packs the cohorts of a run as its plan says; `vary` if they are parts of its cohorts, which differ in size."""

    def __init__(self, run: Run, plan: Plan, vary: bool = False):
        self.plan, self.steps = plan, LocalSteps(run)
        self.alike = bool(np.all(self.steps.sizes == self.steps.sizes[0]))  # all clients
        self._packed: dict[tuple[int, int, int], Packing] = {}
        # Whether lanes change clients all at once must not depend on the cohort: it is compiled in. So is whether
        # clients may run alone.
        split = [splits(run, e) for e in range(len(run.algorithm.exchanges))]
        self.together = [self.steps.uniform or not s for s in split]
        ragged = plan.lanes > 1 and (vary or not self.steps.uniform or cohorts_vary(run))
        self.alone = [s and ragged for s in split]

    def __call__(self, draw: Draw, room: int, exchange: int = 0) -> Packing:
        together, alone = self.together[exchange], self.alone[exchange]
        if not together:
            return pack(self.steps(draw.ids, draw.work), self.plan.lanes, self.plan.devices, room, False, alone)
        if self.steps.uniform and np.any(draw.work != 1):
            raise ValueError("The cohort rule gives partial work, so its partial_work must be True.")
        steps, sizes = self.steps(draw.ids, draw.work), self.steps.sizes[draw.ids]
        if not self.alike:
            return pack(steps, self.plan.lanes, self.plan.devices, room, True, alone, sizes)
        of = len(draw.ids), room, exchange
        if of not in self._packed:  # cohorts of one size have one packing
            self._packed[of] = pack(steps, self.plan.lanes, self.plan.devices, room, True, alone)
        return self._packed[of]


def cohorts_vary(run: Run) -> bool:
    """Do cohorts differ in size? As far as the first rounds show, wherever the run is resumed."""
    if isinstance(run.system, System) and not run.system.loses_nobody:
        return True
    return any(len(draw.ids) < run.cohort_room for draw in first_draws(run))


def first_draws(run: Run) -> list[Draw]:
    """The cohorts of the first rounds."""
    return [draw for t in range(min(ROUNDS_SEEN, run.rounds)) for draw in run.cohorts(t)]
