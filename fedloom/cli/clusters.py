"""What commands share that can use a cluster: its address, and whether whole runs or the clients of each are spread."""

import argparse
import dataclasses
from collections.abc import Sequence
from typing import Any

from fedloom.cluster import need_ray
from fedloom.experiments.definition import Experiment
from fedloom.experiments.spread import in_shards, spread_alone, spread_batches
from fedloom.experiments.study import RunEach


def add_address(command: argparse.ArgumentParser, words: str = "with --engine ray", usual: str = " (default)") -> None:
    """Add the option --address."""
    command.add_argument(
        "--address",
        metavar="A",
        help=f"{words}: the address of a Ray cluster, auto for the one that this machine belongs to, or local for the "
        f"cores of this machine{usual}",
    )


def connect(given: argparse.Namespace) -> None:
    """Connect to the cluster that the options name."""
    need_ray()
    from fedloom.cluster.connect import connect as to_cluster  # imported late: Ray is an extra

    to_cluster(None if given.address in (None, "local") else given.address)


def check_address(given: argparse.Namespace, engine: Any) -> None:
    """Connect if the engine is ray; an address without it is a mistake."""
    if engine == "ray":
        connect(given)
    elif given.address is not None:
        raise ValueError("--address is that of a cluster; add --engine ray.")


def whole_runs(fields: dict[str, Any], experiments: Sequence[Experiment]) -> bool:
    """Whether a study on a cluster spreads whole runs, rather than the clients of each run."""
    return fields.get("engine") == "ray" and "shards" not in fields and not in_shards(experiments)


def here(experiment: Experiment) -> Experiment:
    """The same run without a cluster: what a process of the cluster runs of it, alone."""
    return dataclasses.replace(experiment, engine="simulate")


def spread(given: argparse.Namespace, batches: bool) -> RunEach | None:
    """How the runs that are left are run, if the options name a cluster."""
    if given.address is None:
        return None
    connect(given)
    return spread_batches if batches else spread_alone
