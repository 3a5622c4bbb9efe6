"""FedAvg with BlazeFL on PyTorch: its pool of processes with shared memory, or its pool of threads.

A round's time: downlink_package (parameters as one vector), the trainer's local_process (which makes its pool anew in
each round), uplink_package, and load for each reply, of which the last makes the server average. Data are never copied:
threads have them, and processes are forked with them. Threads share one interpreter lock; free-threaded builds of
Python, which BlazeFL recommends, are not measured here.
"""

import dataclasses
import threading
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # PyTorch imports it at the first SGD step, which takes a second: here once, not in every fork
from blazefl.core import (
    BaseServerHandler,
    IPCMode,
    ProcessPoolClientTrainer,
    SHMHandle,
    ThreadPoolClientTrainer,
    deserialize_model,
    serialize_model,
)

from benchmarks.speed.peers.torch_models import client_data, network, train
from benchmarks.speed.turns import CORES, Turns, arguments, serve
from benchmarks.speed.workloads import WORKLOADS, Workload

DATA: list[tuple[torch.Tensor, torch.Tensor]] = []  # of each client


@dataclasses.dataclass
class Down:
    parameters: torch.Tensor


@dataclasses.dataclass
class Up:
    parameters: Any  # a tensor, or in its place a handle to shared memory
    examples: int
    steps: int


class Server(BaseServerHandler[Up, Down]):
    """Averages as BlazeFL's own FedAvg does; the cohorts are given."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.model = network(workload)
        self.round = 0
        self.replies: list[Up] = []

    def downlink_package(self) -> Down:
        return Down(serialize_model(self.model))

    def sample_clients(self) -> list[int]:
        return self.workload.cohort_of(self.round)

    def if_stop(self) -> bool:
        return False

    def load(self, payload: Up) -> bool:
        self.replies.append(payload)
        if len(self.replies) < self.workload.cohort:
            return False
        self.global_update(self.replies)
        self.round += 1
        self.replies = []
        return True

    def global_update(self, buffer: list[Up]) -> None:
        examples = sum(reply.examples for reply in buffer)
        mean = torch.zeros_like(buffer[0].parameters)
        for reply in buffer:
            mean.add_(reply.parameters, alpha=reply.examples / examples)
        deserialize_model(self.model, mean)


def solve(workload: Workload, client: int, payload: Down, model: torch.nn.Module) -> Up:
    """A client's local work on this model."""
    deserialize_model(model, payload.parameters)
    steps = train(model, workload, *DATA[client])
    return Up(serialize_model(model), workload.sizes[client], steps)


class Threads(ThreadPoolClientTrainer[Up, Down]):
    def __init__(self, workload: Workload, workers: int) -> None:
        self.workload = workload
        self.num_parallels, self.device = workers, "cpu"
        self.cache: list[Up] = []
        self.stop_event = threading.Event()
        self.models = [network(workload) for _ in range(workers)]  # free ones

    def worker(self, cid: int, device: str, payload: Down, stop_event: threading.Event) -> Up:
        model = self.models.pop()
        try:
            return solve(self.workload, cid, payload, model)
        finally:
            self.models.append(model)

    def uplink_package(self) -> list[Up]:
        replies, self.cache = self.cache, []
        return replies


@dataclasses.dataclass
class Job:
    """What a worker process is told."""

    workload: str
    client: int
    threads: int


class Processes(ProcessPoolClientTrainer[Up, Down, Job]):
    def __init__(self, workload: Workload, workers: int) -> None:
        self.workload = workload
        self.num_parallels, self.device = workers, "cpu"
        self.cache: list[Up] = []
        self.share_dir, self.ipc_mode = Path(), IPCMode.SHARED_MEMORY
        self.stop_event = torch.multiprocessing.Manager().Event()
        self.buffer = serialize_model(network(workload))

    def get_client_config(self, cid: int) -> Job:
        return Job(self.workload.name, cid, max(1, CORES // self.num_parallels))

    def prepare_uplink_package_buffer(self) -> Up:
        return Up(self.buffer.clone(), 0, 0)

    @staticmethod
    def worker(config: Job, payload: Down, device: str, stop_event: Any, *, shm_buffer: Up | None = None) -> Up:
        assert shm_buffer is not None
        torch.set_num_threads(config.threads)
        workload = WORKLOADS[config.workload]
        reply = solve(workload, config.client, payload, network(workload))
        shm_buffer.parameters.copy_(reply.parameters)
        return dataclasses.replace(reply, parameters=SHMHandle())

    def uplink_package(self) -> list[Up]:
        replies, self.cache = self.cache, []
        return replies


def main() -> None:
    given = arguments(workers=True, modes=("threads", "processes"))
    workload = WORKLOADS[given.workload]
    turns = Turns(("blazefl", "torch", "numpy"))
    # A process that has used several threads must not fork: those of the pool set their own number.
    torch.set_num_threads(1 if given.mode == "processes" else max(1, CORES // given.workers))
    torch.manual_seed(0)
    DATA.extend(client_data(workload))
    server = Server(workload)
    trainer = (Processes if given.mode == "processes" else Threads)(workload, given.workers)

    def play(rounds: int) -> list[int]:
        steps = []
        for _ in range(rounds):
            trainer.local_process(server.downlink_package(), server.sample_clients())
            replies = trainer.uplink_package()
            for reply in replies:
                server.load(reply)
            steps.append(sum(reply.steps for reply in replies))
        return steps

    serve(turns, play)


if __name__ == "__main__":
    main()
