"""A file of a user's own with one of each kind, and experiments that name them; a task to try the others on.

Tests copy this file into their own folder and change the copy. It is read as a file of the user's.
"""

import pathlib
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fedloom as fl
from fedloom.cohorts import CohortRule, Draw
from fedloom.hyperparameters import count, positive
from fedloom.metrics import Metric


def data(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(40, 2))
    y = (x @ [1.0, -1.0] + 0.3 * rng.normal(size=40) > 0).astype(np.int32)
    return fl.by_client(x, y, np.arange(40) % 4, test=0.25, seed=seed)


task = fl.Task("ours", data, fl.models.mlp(2, 3, 2))


class State(NamedTuple):
    w: jax.Array
    m: jax.Array


@fl.frozen
class Mine(fl.Round):
    """Heavy-ball momentum on the server."""

    lr: float = fl.hyper(positive, "server step size", default=0.5)

    exact = False

    def init(self, w):
        return State(w, jnp.zeros_like(w))

    def send(self, s):
        return s.w

    def local(self, w, memory, client):
        return client.solve(fl.Problem(start=w)).w - w, memory

    def receive(self, s, mean, cohort):
        m = 0.5 * s.m + mean
        return State(s.w + self.lr * m, m)


@fl.frozen
class Signs(fl.Solver):
    """Steps along the signs of the full gradient."""

    lr: float = fl.hyper(positive, "step size", default=0.05)

    def solve(self, problem, objective, key, t, work):
        v = problem.start
        for _ in range(2):
            v = v - self.lr * jnp.sign(problem.gradient(objective.grad(v), v))
        return fl.Solution(v, 2 * objective.size)


@fl.frozen
class Pairs(CohortRule):
    """Clients 0 and 1, then 2 and 3, and so on: not at random."""

    m: int = fl.static(count, "clients in a round", default=2)

    def over(self, p):
        def draw(rng, t):
            ids = np.sort((self.m * t + np.arange(self.m)) % len(p))
            return Draw(ids, p[ids], np.ones(self.m))

        return draw

    def room(self, clients):
        return self.m


def net():
    made = fl.models.mlp(2, 4, 2)
    return fl.models.Model("net", made.init, made.apply)


small = fl.models.mlp(2, 2)


def margin(outputs, y):
    """Multi-class hinge loss."""
    own = jnp.take_along_axis(outputs, y[:, None], axis=1)
    return jnp.sum(jnp.maximum(0, 1 + outputs - own), axis=1) - 1


def _largest(outputs, y):
    return jnp.max(outputs, axis=1), jnp.ones(len(outputs))


largest = Metric("largest", _largest)

# What an experiment of each kind names, beside a registered rest; `task` is the only kind that is no field to change.
KINDS = {
    "algorithm": {"algorithm": "own.py:Mine", "algorithm.lr": 0.75},
    "solver": {"solver": "own.py:Signs", "solver.lr": 0.03125},
    "cohort": {"cohort": "own.py:Pairs", "cohort.m": 3},
    "cohort in a cohort": {"cohort": {"name": "stragglers", "of": {"name": "own.py:Pairs", "m": 3}}},
    "model": {"model": "own.py:net"},
    "model itself": {"model": "own.py:small"},
    "loss": {"loss": "own.py:margin"},
    "metrics": {"metrics": ["own.py:largest", "mse_of.py:it"]},
    "task": {},
}
MSE_OF = """
import jax.numpy as jnp
from fedloom.metrics import Metric
it = Metric("shift", lambda outputs, y: (outputs[:, 0] - y, jnp.ones(len(y))), larger_is_better=False)
"""


def put(folder):
    """The files: own.py, a file for the second metric, and base.py, whose task the kinds but `task` are tried on."""
    text = pathlib.Path(__file__).read_text()
    for name, content in {"own.py": text, "base.py": text, "mse_of.py": MSE_OF}.items():
        (folder / name).write_text(content)
