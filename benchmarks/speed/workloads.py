"""The six workloads: random data of the right shape. NumPy only, since every system measured reads this file.

FedAvg with server step 1 and mean weighted by examples; local SGD without momentum, each client's examples in a fresh
random order, a last batch that may be smaller. No evaluation.
"""

import dataclasses
import functools
import math

import numpy as np


@dataclasses.dataclass(frozen=True)
class Workload:
    name: str
    model: str  # logistic, mlp, cnn or lstm
    shape: tuple[int, ...]  # of one example
    classes: int
    sizes: tuple[int, ...]  # examples of each client
    cohort: int
    batch: int
    epochs: int
    lr: float
    dropout: bool = False
    chunk: int = 1  # rounds from one look at the model to the next: FedLoom compiles these into one call
    period: int = 100  # rounds after which the cohorts begin anew

    @property
    def clients(self) -> int:
        return len(self.sizes)

    def steps(self, client: int) -> int:
        """SGD steps that this client takes in a round."""
        return self.epochs * math.ceil(self.sizes[client] / self.batch)

    def cohorts(self, rounds: int) -> list[list[int]]:
        """Who takes part in each round: the same clients for every system."""
        rng = np.random.default_rng(7)
        return [sorted(rng.choice(self.clients, self.cohort, replace=False).tolist()) for _ in range(rounds)]

    def cohort_of(self, t: int) -> list[int]:
        """Who takes part in round t, counted from 0, of a run of any length."""
        return _drawn(self)[t % self.period]

    def steps_of(self, t: int) -> int:
        """SGD steps of all clients in round t."""
        return sum(self.steps(client) for client in self.cohort_of(t))

    @property
    def unit(self) -> int:
        """A block has a multiple of so many rounds: then blocks of any length have the same work in a round."""
        return 1 if len(set(self.sizes)) == 1 else self.period

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """All examples, client after client: x and labels y. For the LSTM, x are characters and y the next ones."""
        rng = np.random.default_rng(0)
        n = sum(self.sizes)
        if self.model == "lstm":
            text = rng.integers(1, self.classes, (n, self.shape[0] + 1), dtype=np.int32)
            return text[:, :-1], text[:, 1:]
        x = rng.standard_normal((n, *self.shape), dtype=np.float32)
        return x, rng.integers(0, self.classes, n, dtype=np.int32)

    def bounds(self) -> np.ndarray:
        """Client k has the examples bounds[k] to bounds[k + 1]."""
        return np.concatenate([[0], np.cumsum(self.sizes)])


@functools.cache
def _drawn(workload: Workload) -> list[list[int]]:
    return workload.cohorts(workload.period)


def _lognormal_sizes() -> tuple[int, ...]:
    drawn = np.random.default_rng(1).lognormal(4, 2, 30).astype(int) + 50
    return tuple(int(n) for n in np.minimum(drawn, 2000))


WORKLOADS = {
    w.name: w
    for w in (
        Workload("lr-mnist", "logistic", (784,), 10, (60,) * 1000, 10, 10, 1, 0.03, chunk=20),
        Workload("lr-synthetic", "logistic", (60,), 10, _lognormal_sizes(), 10, 10, 20, 0.01, period=4),
        Workload("2nn-mnist", "mlp", (784,), 10, (600,) * 100, 10, 50, 10, 0.1),
        Workload("cnn-emnist", "cnn", (28, 28, 1), 62, (200,) * 100, 10, 20, 1, 0.1),
        Workload("lstm-shakespeare", "lstm", (80,), 90, (24,) * 50, 10, 4, 1, 0.1),
        Workload("cnn-cifar", "cnn", (32, 32, 3), 10, (50,) * 1000, 50, 10, 1, 0.1, dropout=True),
    )
}
