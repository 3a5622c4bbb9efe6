"""Who runs where and when: the clients of a cohort packed into lanes.

A lane runs one client after another, and lanes run side by side: `lanes` of them in one vectorised program on each of
`devices` devices. All lanes step together. When a client ends, its lane continues with the next one at once, so lanes
are filled longest client first, each into the lane that is free first, and little time is lost at the end.
"""

import heapq
from typing import NamedTuple

import numpy as np

from fedloom.cohorts import Draw
from fedloom.engines.costs import LocalSteps
from fedloom.engines.plan import Plan
from fedloom.engines.run import Run
from fedloom.engines.split_solve import splits
from fedloom.engines.trees import Array


class Packing(NamedTuple):
    """The course of one exchange, for each device d. Clients are named by their place in the cohort; `room`: nobody.

    A device runs steps[d, 0] steps of all its lanes, then the clients ends[d, 0] end and begins[d, 0] begin in their
    lanes, lane[d, 0]; then steps[d, 1] steps, and so on, events[d] times. Before, first[d] begin.
    """

    owner: Array  # [room]: the device of each client
    first: Array  # [devices, lanes]
    events: Array  # [devices]
    steps: Array  # [devices, room for events]
    lane: Array  # [devices, room for events, handed over at once]
    ends: Array  # [devices, room for events, handed over at once]
    begins: Array  # [devices, room for events, handed over at once]


def pack(steps: np.ndarray, lanes: int, devices: int, room: int, together: bool) -> Packing:
    """Lanes for clients of so many steps, in a cohort with room for `room`.

    together: all clients take equally many steps, so that all lanes change clients at once.
    """
    return _together(steps, lanes, devices, room) if together else _longest_first(steps, lanes, devices, room)


def _blank(lanes: int, devices: int, room: int, events: int, at_once: int) -> Packing:
    shape = (devices, events, at_once)
    return Packing(
        owner=np.zeros(room, np.int32),
        first=np.full((devices, lanes), room, np.int32),
        events=np.zeros(devices, np.int32),
        steps=np.zeros((devices, events), np.int32),
        lane=np.zeros(shape, np.int32),
        ends=np.full(shape, room, np.int32),
        begins=np.full(shape, room, np.int32),
    )


def _together(steps: np.ndarray, lanes: int, devices: int, room: int) -> Packing:
    waves = -(-room // (devices * lanes))
    packing = _blank(lanes, devices, room, waves, lanes)
    m = len(steps)
    # Client i is dealt to device i % devices; there it is number i // devices.
    dealt = np.full(waves * lanes * devices, room, np.int32)
    dealt[:m] = np.arange(m)
    of = dealt.reshape(waves, lanes, devices).transpose(2, 0, 1)
    packing.owner[:m] = np.arange(m) % devices
    packing.first[:] = of[:, 0]
    packing.events[:] = np.sum(np.any(of < room, axis=2), axis=1)
    packing.steps[:] = np.where(np.any(of < room, axis=2), steps.max(initial=0), 0)
    packing.lane[:] = np.arange(lanes)
    packing.ends[:] = of
    packing.begins[:, :-1] = of[:, 1:]
    return packing


def _longest_first(steps: np.ndarray, lanes: int, devices: int, room: int) -> Packing:
    packing = _blank(lanes, devices, room, room, 1)
    queues: list[list[tuple[int, int]]] = [[] for _ in range(lanes * devices)]  # of each lane: (when it ends, client)
    free = [(0, q) for q in range(lanes * devices)]
    for i in np.argsort(-steps, kind="stable").tolist():
        time, q = heapq.heappop(free)
        time += int(steps[i])
        queues[q].append((time, i))
        heapq.heappush(free, (time, q))
    for d in range(devices):
        endings = []
        for lane, queue in enumerate(queues[d::devices]):
            clients = [i for _, i in queue]
            packing.owner[clients] = d
            if clients:
                packing.first[d, lane] = clients[0]
            following = [*clients[1:], room]
            endings += [(time, lane, i, following[j]) for j, (time, i) in enumerate(queue)]
        endings.sort(key=lambda ending: ending[:2])  # by time and lane; in a lane they are in order
        n = packing.events[d] = len(endings)
        if n:
            time, packing.lane[d, :n, 0], packing.ends[d, :n, 0], packing.begins[d, :n, 0] = np.array(endings).T
            packing.steps[d, :n] = np.diff(time, prepend=0)
    return packing


def wasted(packing: Packing, steps: np.ndarray) -> float:
    """The share of steps that no client needs: lanes that wait, on any device, until the last client has ended."""
    devices, lanes = packing.first.shape
    done = devices * lanes * int(packing.steps.sum(axis=1).max())
    return 1 - int(steps.sum()) / done if done else 0.0


class Packer:
    """Packs the cohorts of a run as its plan says."""

    def __init__(self, run: Run, plan: Plan):
        self.plan, self.steps = plan, LocalSteps(run)
        self._packed: dict[tuple[int, int], Packing] = {}
        # Whether lanes change clients all at once must not depend on the cohort: it is compiled in.
        self.together = [self.steps.uniform or not splits(run, e) for e in range(len(run.algorithm.exchanges))]

    def __call__(self, draw: Draw, room: int, exchange: int = 0) -> Packing:
        if not self.together[exchange]:
            return pack(self.steps(draw.ids, draw.work), self.plan.lanes, self.plan.devices, room, together=False)
        if self.steps.uniform and np.any(draw.work != 1):
            raise ValueError("The cohort rule gives partial work, so its partial_work must be True.")
        of = len(draw.ids), room
        if of not in self._packed:  # cohorts of one size have one packing
            steps = self.steps(draw.ids, draw.work)
            self._packed[of] = pack(steps, self.plan.lanes, self.plan.devices, room, together=True)
        return self._packed[of]
