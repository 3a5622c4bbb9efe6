"""A Ray cluster of two nodes on one machine, and a run whose clients are divided among them.

Run it with `python examples/two_nodes.py`; it needs `pip install 'fedloom[ray]'`. On several machines the cluster is
started with `ray start` instead, and `on_ray` gets its address: docs/cluster.md.
"""

import os
import warnings

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # no telemetry
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # listen on loopback only; Ray reads it when it is imported

import numpy as np
import ray
from ray.cluster_utils import Cluster

import fedloom as fl
from fedloom.cohorts import uniform


def main() -> None:
    warnings.filterwarnings("ignore", ".*os.fork.*", RuntimeWarning)
    node = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    try:
        cluster.add_node(**node)
        ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
        arguments = (fl.Scaffold(), fl.quadratics(clients=40), fl.GD(lr=0.3, steps=5), np.ones(4, np.float32), 10)
        here = list(fl.simulate(*arguments, cohort=uniform(10)))[-1]
        for record in fl.on_ray(*arguments, cohort=uniform(10), shards=4):
            print(record.round, np.round(np.asarray(record.w), 4), record.counters.gradients)
        assert np.allclose(record.w, here.w, atol=1e-5)
        print("the same as on one machine, up to rounding; memories of", len(record.clients), "clients on two nodes")
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
