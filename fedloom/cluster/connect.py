"""The Ray cluster that this process uses, and how many workers it has room for."""

import os
import socket
import warnings

PER_WORKER = 4  # shards for each worker, if nobody says how many: several, so that parts can be shared out evenly


def connect(address: str | None = None) -> None:
    """Connect to the cluster at an address, "auto" for the one that this machine belongs to; None: this machine alone.

    A process that is connected already stays so.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry
    if address is None:  # Ray has no security, so that it must not listen to others; it reads this when it is imported
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    import ray

    if ray.is_initialized():
        return
    warnings.filterwarnings("ignore", ".*os.fork.*", RuntimeWarning)  # Ray starts programs, which is harmless
    if address is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        ray.init("local", num_cpus=cores, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        return
    try:
        _knock(address)
        ray.init(address, log_to_driver=False, logging_level="ERROR")
    except (OSError, ValueError, RuntimeError) as error:
        words = str(error).strip().split("\n")[0][:200].rstrip(".")
        raise ValueError(
            f"address: there is no Ray cluster at {address!r} ({words}). Start one with `ray start --head`, or leave "
            "the address out to use this machine alone."
        ) from error


def _knock(address: str) -> None:
    """Raise an error at once if nobody listens there: Ray would try for minutes."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "://" in address:
        raise ValueError("an address is auto or HOST:PORT, as `ray start --head` prints it")
    socket.create_connection((host, int(port)), timeout=10).close()


def cluster_cpus() -> tuple[int, int, int]:
    """CPUs of the cluster in all, those of its smallest node that has any, and the number of such nodes."""
    import ray

    cpus = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    cpus = [n for n in cpus if n]
    if not cpus:
        raise ValueError("The cluster has no node with a CPU for work; add one with `ray start --address=...`.")
    return sum(cpus), min(cpus), len(cpus)


def usual_shards(cohort: int) -> int:
    """How many shards a run has if nobody says: some for each CPU, but no more than clients in a cohort."""
    return max(1, min(PER_WORKER * cluster_cpus()[0], cohort))


def room_for(shards: int, data: int) -> tuple[int, float, int]:
    """How many workers a run of so many shards gets, the CPUs of each, and the number of nodes.

    Each worker has all data, of so many bytes; raises a sentence if a node has not enough memory for its workers.
    """
    import ray

    cpus, smallest, nodes = cluster_cpus()
    workers = min(cpus, shards)
    each = float(max(1, min(cpus // workers, smallest)))
    for node in ray.nodes():
        room, most = node["Resources"].get("memory"), min(node["Resources"].get("CPU", 0) // each, workers)
        if node["Alive"] and room and data * most > room:
            raise ValueError(
                f"The data take {data / 1e9:.3g} GB in each of up to {most:.0f} workers of node "
                f"{node['NodeManagerAddress']}, which has {room / 1e9:.3g} GB for all. Use fewer shards, so that there "
                "are fewer workers, or nodes with more memory."
            )
    return workers, each, nodes
