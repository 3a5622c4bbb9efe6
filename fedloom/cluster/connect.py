"""The Ray cluster that this process uses, and how many workers it has room for."""

import os
import warnings

import ray

PER_WORKER = 4  # shards for each worker, if nobody says how many: several, so that parts can be shared out evenly


def connect(address: str | None = None) -> None:
    """Connect to the cluster at an address, "auto" for the one that this machine belongs to; None: this machine alone.

    A process that is connected already stays so.
    """
    if ray.is_initialized():
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        # Ray would listen on the network card, and has no security.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        warnings.filterwarnings("ignore", ".*os.fork.*", RuntimeWarning)  # Ray starts programs, which is harmless
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        ray.init("local", num_cpus=cores, _node_ip_address="127.0.0.1", **quiet)
        return
    try:
        del quiet["include_dashboard"]
        ray.init(address, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"address: there is no Ray cluster at {address!r} ({_brief(error)}). Start one with `ray start --head`, or "
            "leave the address out to use this machine alone."
        ) from error


def cluster_cpus() -> tuple[int, int, int]:
    """CPUs of the cluster in all, those of its smallest node that has any, and the number of such nodes."""
    cpus = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    cpus = [n for n in cpus if n]
    if not cpus:
        raise ValueError("The cluster has no node with a CPU for work; add one with `ray start --address=...`.")
    return sum(cpus), min(cpus), len(cpus)


def usual_shards(cohort: int) -> int:
    """How many shards a run has if nobody says: some for each CPU, but no more than clients in a cohort."""
    return max(1, min(PER_WORKER * cluster_cpus()[0], cohort))


def room_for(shards: int) -> tuple[int, float, int]:
    """How many workers a run of so many shards gets, the CPUs of each, and the number of nodes."""
    cpus, smallest, nodes = cluster_cpus()
    workers = min(cpus, shards)
    return workers, float(max(1, min(cpus // workers, smallest))), nodes


def _brief(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200].rstrip(".")
