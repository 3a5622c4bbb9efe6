"""A real Ray cluster on loopback: two nodes with one core each, started and ended by the test that asks for it."""

import contextlib
import os
import pathlib
import signal
import threading
import time
import warnings

import pytest

ROOT = pathlib.Path(__file__).parent.parent
NODE = {
    "num_cpus": 1,
    "node_ip_address": "127.0.0.1",
    "include_dashboard": False,
    "object_store_memory": 100 * 2**20,
}
# A node that does not answer for a second is dead: Ray's own patience is tens of seconds.
QUICK = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 2,
}


# For this process and all that it starts. Ray reads this when it is imported: nodes listen on loopback only, nothing is
# reported to anybody, and no worker is killed because others, such as a study beside the tests, fill the machine's
# memory. Workers compile as the tests do, and share their programs.
ENVIRONMENT = {
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".jax_cache"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "PYTHONPATH": str(ROOT),
}
os.environ.update({name: value for name, value in ENVIRONMENT.items() if name.startswith("RAY")})


@contextlib.contextmanager
def two_nodes():
    """The cluster, with this process connected to it."""
    ray = pytest.importorskip("ray", reason="needs Ray: pip install 'fedloom[ray]'")
    from ray.cluster_utils import Cluster

    from fedloom.cluster.staff import dismiss_all

    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray forks, and leaves sockets to the garbage collector
        cluster = Cluster(initialize_head=True, head_node_args={**NODE, "_system_config": QUICK})
        try:
            cluster.add_node(**NODE)
            ray.init(cluster.address, _node_ip_address="127.0.0.1", log_to_driver=False, logging_level="ERROR")
            yield cluster
        finally:
            with contextlib.suppress(Exception):
                dismiss_all()
            ray.shutdown()
            cluster.shutdown()
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


def kill(pid):
    """As a crash or the system's own hand would."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def later(seconds, what, *args):
    """Do something after a while, beside what the test does."""

    def wait():
        time.sleep(seconds)
        with contextlib.suppress(Exception):
            what(*args)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread
