"""Milliseconds for a training gradient with our layers for CPUs, and with JAX's own: run with nothing else running.

python benchmarks/layers.py
"""

import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp

from fedloom.metrics import cross_entropy
from fedloom.models import MODELS, Model


def gradient(model: Model) -> Callable[..., Any]:
    def loss(params: Any, x: Any, y: Any) -> Any:
        return jnp.mean(cross_entropy(model.apply(params, x, None), y))

    return jax.jit(jax.grad(loss))


def milliseconds(model: Model, x: Any, y: Any, ours: bool) -> float:
    """The best of ten."""
    with (
        mock.patch("fedloom.models.layers.on_cpu", return_value=ours),
        mock.patch("fedloom.models.lstm.on_cpu", return_value=ours),
    ):
        params = model.init(jax.random.key(0))
        run = gradient(model)
        jax.block_until_ready(run(params, x, y))
    times = []
    for _ in range(10):
        start = time.perf_counter()
        jax.block_until_ready(run(params, x, y))
        times.append(time.perf_counter() - start)
    return 1000 * min(times)


def main() -> None:
    k = jax.random.key(1)
    cases = {
        "emnist-cnn": (jax.random.uniform(k, (20, 28, 28)), jnp.zeros(20, int)),
        "mnist-cnn": (jax.random.uniform(k, (64, 28, 28)), jnp.zeros(64, int)),
        "feddyn-cifar10": (jax.random.uniform(k, (50, 32, 32, 3)), jnp.zeros(50, int)),
        "fedopt-shakespeare": (jax.random.randint(k, (4, 80), 1, 90), jnp.ones((4, 80), int)),
        "feddyn-shakespeare": (jax.random.randint(k, (100, 80), 0, 80), jnp.zeros(100, int)),
    }
    print(f"{'model':<20} {'batch':>5} {'ours':>8} {'native':>8} {'ratio':>6}")
    for name, (x, y) in cases.items():
        ours, native = (milliseconds(MODELS[name](), x, y, which) for which in (True, False))
        print(f"{name:<20} {len(x):>5} {ours:>8.1f} {native:>8.1f} {native / ours:>6.2f}", flush=True)


if __name__ == "__main__":
    main()
