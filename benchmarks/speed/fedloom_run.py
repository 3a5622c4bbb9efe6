"""FedLoom on one workload, in turns with the peers: see turns.py.

python -m benchmarks.speed.fedloom_run WORKLOAD [--plan LANESxDEVICES]
"""

import argparse
import dataclasses
import os
import platform
import sys
import time
from typing import Any

STARTED = time.perf_counter()

import jax  # noqa: E402 (its import is part of the start-up time)

jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.flatten_util import ravel_pytree  # noqa: E402

import fedloom as fl  # noqa: E402
from benchmarks.speed.turns import Turns, serve  # noqa: E402
from benchmarks.speed.workloads import WORKLOADS, Workload  # noqa: E402
from fedloom.engines.checks import checked  # noqa: E402
from fedloom.engines.choose_plan import measure  # noqa: E402
from fedloom.engines.plan import Plan  # noqa: E402
from fedloom.metrics import cross_entropy  # noqa: E402
from fedloom.models.blocks import conv_relu, conv_relu_pool  # noqa: E402
from fedloom.models.layers import dense, dropout, embedding, weights  # noqa: E402
from fedloom.models.lstm import keras_weights, lstm  # noqa: E402

ENDLESS = 10**7  # rounds: more than there are turns for


def model(w: Workload, key: Any) -> tuple[Any, Any]:
    """Parameters, and apply(parameters, x, key)."""
    k = jax.random.split(key, 4)
    p: dict[str, Any]
    if w.model == "logistic":
        logistic = fl.models.logistic(w.shape[0], w.classes)
        return logistic.init(key), logistic.apply
    if w.model == "mlp":
        sizes = [784, 200, 100, w.classes]
        layers = [weights(k[i], sizes[i], sizes[i + 1]) for i in range(3)]

        def mlp(p: Any, x: Any, key: Any) -> Any:
            for layer in p[:-1]:
                x = jax.nn.relu(dense(layer, x))
            return dense(p[-1], x)

        return layers, mlp
    if w.model == "cnn":
        side, _, channels = w.shape
        left = (side - 4) // 2
        p = {
            "conv1": weights(k[0], 3, 3, channels, 32),
            "conv2": weights(k[1], 3, 3, 32, 64),
            "dense1": weights(k[2], left * left * 64, 128),
            "dense2": weights(k[3], 128, w.classes),
        }

        def cnn(p: Any, x: Any, key: Any) -> Any:
            first, second = jax.random.split(key) if w.dropout and key is not None else (None, None)
            h = conv_relu_pool(p["conv2"], conv_relu(p["conv1"], x))
            h = dropout(first, 0.25, h).reshape(h.shape[0], -1)
            h = dropout(second, 0.5, jax.nn.relu(dense(p["dense1"], h)))
            return dense(p["dense2"], h)

        return p, cnn
    p = {
        "embed": jax.random.normal(k[0], (w.classes, 8)) * 0.1,
        "lstm1": keras_weights(k[1], 8, 256),
        "lstm2": keras_weights(k[2], 256, 256),
        "dense": weights(k[3], 256, w.classes),
    }

    def characters(p: Any, x: Any, key: Any) -> Any:
        return dense(p["dense"], lstm(p["lstm2"], lstm(p["lstm1"], embedding(p["embed"], x))))

    return p, characters


def operations(w: Workload) -> int:
    """Floating-point operations of a training gradient for one example: matrix products and convolutions only.

    Forward once, backward twice, but no gradient with respect to the examples themselves.
    """
    if w.model == "logistic":
        layers = [w.shape[0] * w.classes]
    elif w.model == "mlp":
        layers = [784 * 200, 200 * 100, 100 * w.classes]
    elif w.model == "cnn":
        side, _, channels = w.shape
        pooled = ((side - 4) // 2) ** 2 * 64
        layers = [
            (side - 2) ** 2 * 9 * channels * 32,
            (side - 4) ** 2 * 9 * 32 * 64,
            pooled * 128,
            128 * w.classes,
        ]
    else:
        layers = [
            0,  # the first layer's inputs are parameters too
            80 * (8 + 256) * 1024,
            80 * (256 + 256) * 1024,
            80 * 256 * w.classes,
        ]
    return 6 * sum(layers) - 2 * layers[0]


def matmul_rate() -> float:
    """Operations a second of this machine's own product of two 2048 x 2048 matrices."""
    a = jax.random.normal(jax.random.key(0), (2048, 2048))
    product = jax.jit(lambda a: a @ a)
    product(a).block_until_ready()
    times = []
    for _ in range(5):
        start = time.perf_counter()
        product(a).block_until_ready()
        times.append(time.perf_counter() - start)
    return 2 * 2048**3 / min(times)


@dataclasses.dataclass(frozen=True)
class Repeated(fl.cohorts.scheduled):
    """The trace over and over."""

    def over(self, p: np.ndarray) -> Any:
        draw = super().over(p)
        return lambda rng, t: draw(rng, t % len(self.trace))


def setting(w: Workload) -> tuple[Any, ...]:
    """Federation, solver, initial model and cohorts."""
    params, apply = model(w, jax.random.key(0))
    flat, unravel = ravel_pytree(params)

    def loss(params: Any, rows: Any, key: Any) -> Any:
        x, y = rows
        return cross_entropy(apply(params, x, key), y)

    federation = fl.examples(w.data(), np.array(w.sizes), loss, unravel)
    solver = fl.SGD(w.lr, batch_size=w.batch, epochs=w.epochs)
    return federation, solver, flat, Repeated([w.cohort_of(t) for t in range(w.period)])


def run(w: Workload, plan: Plan | None) -> None:
    turns = Turns(())
    federation, solver, flat, cohort = setting(w)
    imported = time.perf_counter()
    if plan is None:
        run = checked(fl.FedAvg(), federation, solver, flat, ENDLESS, cohort=cohort)
        plan = measure(run, lambda words: print(words, file=sys.stderr))
    measured = time.perf_counter()
    records = fl.simulate(fl.FedAvg(), federation, solver, flat, ENDLESS, cohort=cohort, chunk=w.chunk, plan=plan)
    turns.facts = {
        "versions": {"python": platform.python_version(), "fedloom": fl.__version__, "jax": jax.__version__},
        "plan": str(plan),
        "layout": f"{plan.lanes}x{plan.devices}",
        "measuring": measured - imported,
        "start-up": imported - STARTED,
        "operations": sum(_examples(w, t) for t in range(w.period)) / w.period * operations(w),
        "matmul rate": matmul_rate(),
    }
    done = gradients = 0

    def play(rounds: int) -> list[int]:
        nonlocal done, gradients
        for _ in range(rounds // w.chunk):
            record = next(records)
            jnp.asarray(record.w).block_until_ready()
        assert record.round == done + rounds, f"{record.round - done} rounds instead of {rounds}"
        expected = sum(_examples(w, t) for t in range(done, record.round))
        examples = record.counters.gradients - gradients
        assert examples == expected, f"{examples} example gradients instead of {expected}"
        steps = [w.steps_of(t) for t in range(done, record.round)]
        done, gradients = record.round, record.counters.gradients
        return steps

    serve(turns, play)


def _examples(w: Workload, t: int) -> int:
    """Gradients of single examples in round t."""
    return sum(w.epochs * w.sizes[k] for k in w.cohort_of(t))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=sorted(WORKLOADS))
    parser.add_argument("--plan", type=Plan.from_text, help="LANESxDEVICES; measured if not given")
    given = parser.parse_args()
    run(WORKLOADS[given.workload], given.plan)


if __name__ == "__main__":
    main()
