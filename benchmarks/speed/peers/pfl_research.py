"""FedAvg with Apple's pfl (pfl-research) on PyTorch, in one process or in several under torchrun, as its guide says.

A block's time: central iterations of FederatedAveraging.run, from callback to callback: the cohort's datasets, local
SGD, weighting by examples, the sum over clients (and processes), the central step. The callback waits for its turn.
Evaluation is off; pfl evaluates in its first iteration whatever is asked, and that one warms up. pfl takes the batches
of all local epochs in one order: here a fresh one in each round.
"""

import itertools
import os
import sys

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

from benchmarks.speed.peers.torch_models import client_data, loss, network
from benchmarks.speed.turns import CORES, Turns, arguments
from benchmarks.speed.workloads import WORKLOADS, Workload

MODULE = "benchmarks.speed.peers.pfl_research"
ENDLESS = 10**7  # iterations: more than there are turns for


class Clock(TrainingProcessCallback):
    """Waits between central iterations for the next turn, times blocks of them, and counts their SGD steps."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.left = 0  # iterations of this block
        self.steps: list[int] = []  # that this process took in each
        self.taken = 0

    def sgd(self, parameters: object, lr: float) -> torch.optim.Optimizer:
        optimizer = torch.optim.SGD(parameters, lr=lr)
        optimizer.register_step_post_hook(self.count)
        return optimizer

    def count(self, *unused: object) -> None:
        self.taken += 1

    def next_turn(self) -> None:
        """One process is told to go on; the others wait for its word."""
        distributed = get_ops().distributed
        rounds = self.turns.wait() if distributed.global_rank == 0 else 0
        [total] = distributed.all_reduce([torch.tensor(float(rounds))])
        self.left, self.steps = int(total), []
        self.turns.start()

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        self.next_turn()
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.steps.append(self.taken)
        self.taken = 0
        self.left -= 1
        if self.left == 0:
            self.turns.stop()
            distributed = get_ops().distributed
            [total] = distributed.all_reduce([torch.tensor(self.steps)])
            if distributed.global_rank == 0:
                self.turns.answer([int(count) for count in total])
            self.next_turn()
        return False, Metrics()


def learner(workload: Workload, clock: Clock) -> PyTorchModel:
    """The model with the methods that pfl asks of it, and a central step that replaces it by the mean."""
    module = network(workload)
    module.loss = lambda x, y: loss(module, x, y)
    module.metrics = lambda x, y: {"examples": Weighted(len(x), 1)}
    central = torch.optim.SGD(module.parameters(), lr=1.0)
    return PyTorchModel(module, local_optimizer_create=clock.sgd, central_optimizer=central)


def run(workload: Workload, turns: Turns) -> None:
    data = client_data(workload)

    def dataset(client: int) -> PyTorchTensorDataset:
        order = torch.randperm(workload.sizes[client])
        return PyTorchTensorDataset(tuple(values[order] for values in data[client]), user_id=str(client))

    clients = (client for t in itertools.count() for client in workload.cohort_of(t))
    federated = FederatedDataset(dataset, clients.__next__, dict(enumerate(workload.sizes)))
    clock = Clock(turns)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=ENDLESS,
            evaluation_frequency=ENDLESS,
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


def main() -> None:
    given = arguments(workers=True)
    if given.workers > 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
        launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={given.workers}", "-m", MODULE]
        os.execv(sys.executable, [sys.executable, *launch, *sys.argv[1:]])
    torch.set_num_threads(max(1, CORES // given.workers))
    torch.manual_seed(0)
    run(WORKLOADS[given.workload], Turns(("pfl", "torch", "numpy")))


if __name__ == "__main__":
    main()
