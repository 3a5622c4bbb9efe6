"""How the clients of a cohort are laid out on the machine."""

import dataclasses
from typing import Any

import jax

from fedloom.engines.processes import device_count, several


@dataclasses.dataclass(frozen=True)
class Plan:
    """`lanes` clients side by side in a vectorised program on each of `devices` devices; others follow in turn.

    Many lanes suit small models, which are dominated by the overhead of each operation; few lanes suit large ones. On a
    cluster the clients are divided into `shards`, and a part of a cohort runs on one device.
    """

    lanes: int
    devices: int = 1
    shards: int | None = None  # None: not on a cluster

    def __post_init__(self) -> None:
        for name in ("lanes", "devices", *(["shards"] if self.shards is not None else [])):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"Plan: {name} must be a positive integer, got {value!r}.")

    def __str__(self) -> str:
        lanes = "1 lane" if self.lanes == 1 else f"{self.lanes} lanes"
        lanes += f" on each of {self.devices} devices" if self.devices > 1 else ""
        return lanes + (f" for each of {self.shards} shards" if self.shards is not None else "")

    @classmethod
    def from_text(cls, text: str) -> "Plan":
        """ "5x2" is 5 lanes on each of 2 devices."""
        parts = text.split("x")
        if not 1 <= len(parts) <= 2 or not all(part.isdecimal() for part in parts):
            raise ValueError(f"plan must be LANES or LANESxDEVICES, e.g. 5x2, got {text!r}.")
        return cls(*map(int, parts))


def check_plan(plan: Any) -> None:
    """Raise a sentence if this machine, or several processes together, cannot run the plan."""
    if not isinstance(plan, Plan):
        raise TypeError(f"plan must be a Plan, e.g. Plan(lanes=4, devices=2), got {plan!r}.")
    here = device_count()
    if several():
        n = jax.process_count()
        if plan.devices > here:
            raise ValueError(
                f"plan: there are {here} devices in all processes, not {plan.devices}; start more processes, or choose "
                "a plan with fewer devices."
            )
        if 1 < plan.devices < n:
            raise ValueError(
                f"plan: each of the {n} processes must have one of the devices, and {plan.devices} are too few; use "
                f"{n} or more (or 1, on which every process does all of the work)."
            )
    elif plan.devices > here:
        raise ValueError(
            f"plan: this machine has {here} devices, not {plan.devices}. A CPU is one device, unless JAX is told "
            f'otherwise before its first use: jax.config.update("jax_num_cpu_devices", {plan.devices}).'
        )
