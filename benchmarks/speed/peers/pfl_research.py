"""FedAvg with Apple's pfl (pfl-research) on PyTorch, in one process or in several under torchrun, as its guide says.

A round's time: one central iteration of FederatedAveraging.run, from callback to callback: the cohort's datasets, local
SGD, weighting by examples, the sum over clients (and processes), the central step. Evaluation is off; pfl evaluates in
its first iteration whatever is asked, and that one warms up. pfl takes the batches of all local epochs in one order:
here a fresh one in each round.
"""

import itertools
import os
import subprocess
import sys
import time

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops import get_ops
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel

from benchmarks.speed.peers.measure import CORES, arguments, best_of_workers, peak_mb, report
from benchmarks.speed.peers.torch_models import client_data, loss, network
from benchmarks.speed.workloads import WORKLOADS, Workload

MODULE = "benchmarks.speed.peers.pfl_research"


class Clock(TrainingProcessCallback):
    """Times the central iterations and counts the SGD steps that this process takes in each."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.steps: list[int] = []
        self.taken = 0

    def sgd(self, parameters: object, lr: float) -> torch.optim.Optimizer:
        optimizer = torch.optim.SGD(parameters, lr=lr)
        optimizer.register_step_post_hook(self.count)
        return optimizer

    def count(self, *unused: object) -> None:
        self.taken += 1

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        self.last = time.perf_counter()
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        now = time.perf_counter()
        self.seconds.append(now - self.last)
        self.steps.append(self.taken)
        self.taken, self.last = 0, now
        return False, Metrics()


def learner(workload: Workload, clock: Clock) -> PyTorchModel:
    """The model with the methods that pfl asks of it, and a central step that replaces it by the mean."""
    module = network(workload)
    module.loss = lambda x, y: loss(module, x, y)
    module.metrics = lambda x, y: {"examples": Weighted(len(x), 1)}
    central = torch.optim.SGD(module.parameters(), lr=1.0)
    return PyTorchModel(module, local_optimizer_create=clock.sgd, central_optimizer=central)


def run(workload: Workload, rounds: int) -> tuple[list[float], list[int]]:
    data = client_data(workload)

    def dataset(client: int) -> PyTorchTensorDataset:
        order = torch.randperm(workload.sizes[client])
        return PyTorchTensorDataset(tuple(values[order] for values in data[client]), user_id=str(client))

    # Over and over, since pfl draws users ahead of their rounds.
    turns = itertools.cycle(client for cohort in workload.cohorts(rounds) for client in cohort)
    federated = FederatedDataset(dataset, turns.__next__, dict(enumerate(workload.sizes)))
    clock = Clock()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds,
            train_cohort_size=workload.cohort,
            val_cohort_size=0,
        ),
        SimulatedBackend(federated, federated, postprocessors=[WeightByDatapoints()]),
        learner(workload, clock),
        NNTrainHyperParams(
            local_batch_size=workload.batch, local_num_epochs=workload.epochs, local_learning_rate=workload.lr
        ),
        NNEvalHyperParams(local_batch_size=None),
        callbacks=[clock],
        send_metrics_to_platform=False,
    )
    return clock.seconds, clock.steps


def main() -> None:
    given = arguments(workers=True)
    if given.workers is None:
        best_of_workers(MODULE, given)
        return
    if given.workers > 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
        launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={given.workers}", "-m", MODULE]
        sys.exit(subprocess.run([sys.executable, *launch, *sys.argv[1:]]).returncode)
    workload = WORKLOADS[given.workload]
    torch.set_num_threads(max(1, CORES // given.workers))
    torch.manual_seed(0)
    seconds, steps = run(workload, given.warmup + given.rounds)
    distributed = get_ops().distributed
    [total, peak] = distributed.all_reduce([torch.tensor(steps), torch.tensor(peak_mb())])
    if distributed.global_rank == 0:
        timed = slice(given.warmup, None)
        taken = [int(count) for count in total[timed]]
        report("pfl", ("pfl", "torch", "numpy"), workload, seconds[timed], taken, given.workers, round(float(peak), 1))


if __name__ == "__main__":
    main()
