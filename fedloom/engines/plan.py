"""How the clients of a cohort are laid out on the machine."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.client import Federation
from fedloom.cohorts import Draw
from fedloom.engines.halves import in_steps
from fedloom.engines.program import has_halves
from fedloom.engines.run import Run
from fedloom.engines.schedule import Schedule, pack


@dataclasses.dataclass(frozen=True)
class Plan:
    """`lanes` clients side by side in a vectorised program on each of `devices` devices; others follow in turn.

    Many lanes suit small models, which are dominated by the overhead of each operation; few lanes suit large ones.
    """

    lanes: int
    devices: int = 1

    def __post_init__(self) -> None:
        for name in ("lanes", "devices"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"Plan: {name} must be a whole number, 1 or more, got {value!r}.")

    def __str__(self) -> str:
        lanes = "1 lane" if self.lanes == 1 else f"{self.lanes} lanes"
        return lanes + (f" on each of {self.devices} devices" if self.devices > 1 else "")

    @classmethod
    def from_text(cls, text: str) -> "Plan":
        """ "5x2" is 5 lanes on each of 2 devices."""
        parts = text.split("x")
        if not 1 <= len(parts) <= 2 or not all(part.isdecimal() for part in parts):
            raise ValueError(f"plan must be LANES or LANESxDEVICES, such as 5x2, got {text!r}.")
        return cls(*map(int, parts))


def check_plan(plan: Any) -> None:
    """Raise a sentence if a plan cannot be had on this machine."""
    if not isinstance(plan, Plan):
        raise TypeError(f"plan must be a value such as Plan(lanes=4, devices=2), got {plan!r}.")
    here = jax.local_device_count()
    if plan.devices > here:
        raise ValueError(
            f"plan: there are {here} devices, not {plan.devices}. A CPU is one device, unless JAX is told before its "
            f'first use: jax.config.update("jax_num_cpu_devices", {plan.devices}).'
        )


class Packing:
    """Packs the cohorts of a run as its plan says."""

    def __init__(self, run: Run, plan: Plan):
        self.run, self.plan = run, plan
        self._packed: dict[tuple[int, int], Schedule] = {}
        self.sizes, self.capacity = np.asarray(_sizes(run.federation)), run.federation.objective(0).capacity
        whole = self.steps_of_all()
        self.uniform = not run.partial_work and bool(np.all(whole == whole[0]))  # all clients take equally many steps
        # Whether lanes change clients all at once must not depend on the cohort: it is compiled in.
        exchanges = range(len(run.algorithm.exchanges))
        self.together = [self.uniform or not has_halves(run, e) for e in exchanges]

    def _steps(self, sizes: np.ndarray, work: np.ndarray) -> np.ndarray:
        solver: Any = self.run.solver
        if not in_steps(solver):
            return np.zeros(len(sizes), np.int32)
        return np.broadcast_to(np.asarray(solver.steps_for(sizes, self.capacity, work)), sizes.shape)

    def steps_of_all(self) -> np.ndarray:
        """The steps of every client of the population that does all its work."""
        return self._steps(self.sizes, np.ones(len(self.sizes)))

    def steps(self, draw: Draw) -> np.ndarray:
        """The steps of each client."""
        return self._steps(self.sizes[draw.ids], draw.work)

    def __call__(self, draw: Draw, room: int, exchange: int = 0) -> Schedule:
        if not self.together[exchange]:
            return pack(self.steps(draw), self.plan.lanes, self.plan.devices, room, together=False)
        if self.uniform and np.any(draw.work != 1):
            raise ValueError("The cohort rule gives partial work, so its partial_work must be True.")
        of = len(draw.ids), room
        if of not in self._packed:  # cohorts of one size have one schedule
            self._packed[of] = pack(self.steps(draw), self.plan.lanes, self.plan.devices, room, together=True)
        return self._packed[of]


@jax.jit
def _sizes(federation: Federation) -> jax.Array:
    """The number of examples of each client."""
    return jax.vmap(lambda k: jnp.asarray(federation.objective(k).size))(jnp.arange(federation.clients))
