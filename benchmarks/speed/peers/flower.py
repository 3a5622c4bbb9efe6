"""FedAvg with Flower's simulation on Ray: actors that train clients in parallel, each with its share of the cores.

A block's time: from the strategy's configure_train of its first round (messages with the server's arrays are made) to
the end of aggregate_train of its last (the weighted mean), with all between: Flower's queues, Ray, the clients' SGD
steps. The strategy waits for its turn in configure_train. Evaluation is off.
"""

import os
import time
from collections.abc import Iterable

# Before the imports, which read them. Without the last, Ray takes a preloaded allocator away from its workers.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_LD_PRELOAD_ON_WORKERS", "1")

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.speed.peers import flower_client
from benchmarks.speed.peers.torch_models import network
from benchmarks.speed.turns import CORES, Turns, arguments
from benchmarks.speed.workloads import WORKLOADS, Workload


def total_steps(replies: list[RecordDict], weighted_by: str) -> MetricRecord:
    return MetricRecord({"steps": sum(int(reply["metrics"]["steps"]) for reply in replies)})


class TimedFedAvg(FedAvg):
    """Flower's FedAvg with the cohorts given, in turns with others."""

    def __init__(self, workload: Workload, turns: Turns) -> None:
        super().__init__(fraction_evaluate=0.0, train_metrics_aggr_fn=total_steps)
        self.workload, self.turns = workload, turns
        self.node_of: dict[int, int] = {}  # client -> Flower's node
        self.left = 0  # rounds of this block
        self.steps: list[int] = []

    def find_nodes(self, grid: Grid, clients: int) -> None:
        """Wait for all nodes and ask each which client it is."""
        while len(nodes := list(grid.get_node_ids())) < clients:
            time.sleep(0.1)
        asked = self._construct_messages(RecordDict(), nodes, MessageType.QUERY)
        for reply in grid.send_and_receive(asked):
            self.node_of[int(reply.content["metrics"]["client"])] = reply.metadata.src_node_id

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if self.left == 0:
            self.left, self.steps = self.turns.wait(), []
            self.turns.start()
        nodes = [self.node_of[client] for client in self.workload.cohort_of(server_round - 1)]
        record = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
        return self._construct_messages(record, nodes, MessageType.TRAIN)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        if failed := [reply.error.reason for reply in replies if reply.has_error()]:
            raise RuntimeError(f"{len(failed)} clients failed in round {server_round}; the first: {failed[0]}")
        arrays, metrics = super().aggregate_train(server_round, replies)
        self.steps.append(int(metrics["steps"]))
        self.left -= 1
        if self.left == 0:
            self.turns.stop()
            self.turns.answer(self.steps)
        return arrays, metrics


def main() -> None:
    given = arguments(workers=True)
    workload = WORKLOADS[given.workload]
    threads = max(1, CORES // given.workers)
    strategy = TimedFedAvg(workload, Turns(("flwr", "ray", "torch", "numpy")))
    server = ServerApp()

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        strategy.find_nodes(grid, workload.clients)
        config = ConfigRecord({"workload": workload.name, "threads": threads})
        initial = ArrayRecord(network(workload).state_dict())
        strategy.start(grid, initial, num_rounds=10**7, train_config=config)  # until the process is ended

    run_simulation(
        server,
        flower_client.app,
        num_supernodes=workload.clients,
        backend_config={
            "init_args": {"num_cpus": CORES},
            "client_resources": {"num_cpus": threads, "num_gpus": 0.0},
        },
    )


if __name__ == "__main__":
    main()
