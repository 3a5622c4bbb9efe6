"""FedAvg with Google's FedJAX on the CPU: its federated_averaging on its default (jit) for_each_client backend.

A round's time: one call of the algorithm's apply, until the new parameters are there: batches in NumPy, one compiled
call for each SGD step, the weighted sum. FedJAX fills a last smaller batch up with further examples, so that all
batches have one shape.
"""

from collections.abc import Iterator
from typing import Any

import fedjax
import haiku as hk
import jax
import numpy as np

from benchmarks.speed.turns import Turns, arguments, serve
from benchmarks.speed.workloads import WORKLOADS, Workload

Batch = dict[str, Any]


def forward(workload: Workload, x: Any) -> Any:
    """Logits of the workload's model, in Haiku."""
    if workload.model == "logistic":
        return hk.Linear(workload.classes)(x)
    if workload.model == "mlp":
        return hk.nets.MLP([200, 100, workload.classes])(x)
    if workload.model == "lstm":
        embedded = hk.Embed(workload.classes, 8)(x)
        core = hk.DeepRNN([hk.LSTM(256), hk.LSTM(256)])
        hidden, _ = hk.dynamic_unroll(core, embedded, core.initial_state(len(x)), time_major=False)
        return hk.Linear(workload.classes)(hidden)
    for channels in (32, 64):
        x = jax.nn.relu(hk.Conv2D(channels, 3, padding="VALID")(x))
    x = hk.MaxPool((1, 2, 2, 1), (1, 2, 2, 1), "VALID")(x)
    if workload.dropout:
        x = hk.dropout(hk.next_rng_key(), 0.25, x)
    x = jax.nn.relu(hk.Linear(128)(hk.Flatten()(x)))
    if workload.dropout:
        x = hk.dropout(hk.next_rng_key(), 0.5, x)
    return hk.Linear(workload.classes)(x)


def per_example_loss(batch: Batch, logits: Any) -> Any:
    losses = fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], logits)
    return losses.reshape(len(losses), -1).mean(1)  # over the characters, for the LSTM


class ClientDataset(fedjax.ClientDataset):
    """One client's examples, whose batches are counted as they are trained on.

    FedJAX runs its epochs together and takes ceil(epochs * examples / batch) steps; here every epoch has a last batch.
    """

    taken = 0  # by all clients

    def shuffle_repeat_batch(self, hparams: fedjax.ShuffleRepeatBatchHParams) -> Iterator[Batch]:
        for _ in range(hparams.num_epochs):
            for batch in super().shuffle_repeat_batch(hparams, num_epochs=1):
                ClientDataset.taken += 1
                yield batch


def main() -> None:
    given = arguments()
    turns = Turns(("fedjax", "jax", "jaxlib", "dm-haiku", "numpy"))
    workload = WORKLOADS[given.workload]
    x, y = workload.data()
    splits = workload.bounds()[1:-1]
    parts = zip(np.split(x, splits), np.split(y, splits), strict=True)
    data = [ClientDataset({"x": a, "y": b}) for a, b in parts]
    model = fedjax.create_model_from_haiku(
        hk.transform(lambda batch: forward(workload, batch["x"])), {"x": x[:1], "y": y[:1]}, per_example_loss
    )
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        fedjax.model_grad(model),
        fedjax.optimizers.sgd(workload.lr),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=workload.batch, num_epochs=workload.epochs),
    )
    state = algorithm.init(model.init(jax.random.PRNGKey(0)))
    done = 0

    def play(rounds: int) -> list[int]:
        nonlocal state, done
        steps = []
        for t in range(done, done + rounds):
            ClientDataset.taken = 0
            cohort = workload.cohort_of(t)
            keys = jax.random.split(jax.random.PRNGKey(t), len(cohort))
            state, _ = algorithm.apply(state, [(k, data[k], key) for k, key in zip(cohort, keys, strict=True)])
            jax.block_until_ready(state.params)
            steps.append(ClientDataset.taken)
        done += rounds
        return steps

    serve(turns, play)


if __name__ == "__main__":
    main()
