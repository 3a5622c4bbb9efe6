"""Problems whose constants are known in closed form, and runs on them, for the tests of bounds."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fedloom as fl
from fedloom.client import Federation
from fedloom.data.quadratic import Quadratic, Quadratics
from fedloom.hyperparameters import frozen
from fedloom.theory.constant import Constants, Measured

EVERYWHERE = frozenset({"L", "L_f", "mu", "rho", "sigma_l", "sigma_g", "sigma_g_mean", "B", "G", "D", "gap"})


@dataclasses.dataclass(frozen=True)
class Problem:
    federation: Federation
    w: np.ndarray
    constants: Constants
    gap: Callable[[np.ndarray], np.ndarray]  # f - f*, or an upper bound of f*
    gradient: Callable[[np.ndarray], np.ndarray]  # |grad f|^2

    def value(self, left):
        return self.gap if left.value == "gap" else self.gradient


class Noisy(Quadratic):
    """Minibatch gradients with independent noise of variance 1 in all."""

    def batch_grad(self, params, positions, mask, key):
        return self.grad(params) + jax.random.normal(key, params.shape, params.dtype) / np.sqrt(params.shape[0])


@frozen
class NoisyQuadratics(Federation):
    hessians: Any
    centers: Any
    weights: Any

    def objective(self, k):
        return Noisy(jnp.asarray(self.hessians)[k], jnp.asarray(self.centers)[k])


def _basis(rng, d):
    return np.linalg.qr(rng.normal(size=(d, d)))[0]


def _hessian(rng, eigenvalues):
    q = _basis(rng, len(eigenvalues))
    return q @ np.diag(eigenvalues) @ q.T


def quadratic_problem(a, b, w, noise=0.0):
    """F_k = 1/2 (w - b_k)' A_k (w - b_k), of equal weights, with all constants; those of differences if they exist."""
    m, d = b.shape
    mean, linear = a.mean(0), np.einsum("kij,kj->i", a, b) / m
    star = w + np.linalg.lstsq(mean, linear - mean @ w, rcond=1e-9)[0]  # the minimiser nearest to w

    def gap(x):
        return np.einsum("...i,ij,...j->...", x - star, mean, x - star) / 2

    def gradient(x):
        return np.sum((x @ mean - linear) ** 2, -1)

    eigenvalues = np.linalg.eigvalsh(a)
    each = np.einsum("kij,kj->ki", a, star - b)  # gradients at w*
    same = np.allclose(a, a[0])
    apart = np.linalg.norm(each, axis=1)
    if np.allclose(each, 0) and np.linalg.eigvalsh(mean)[0] > 1e-9:
        inverse = np.linalg.inv(mean)
        squares = np.einsum("kij,kjl->il", a, a) / m
        dissimilarity = float(np.sqrt(np.linalg.eigvalsh(inverse @ squares @ inverse)[-1]))
    else:
        dissimilarity = np.inf
    start = np.einsum("kij,kj->ki", a, w - b)
    spread = np.sqrt(np.mean(np.sum((start - start.mean(0)) ** 2, 1)))
    low = max(float(eigenvalues.min()), 0.0)
    constants = Constants(
        weights=np.full(m, 1 / m),
        dimension=d,
        L=Measured(float(np.abs(eigenvalues).max())),
        L_k=np.abs(eigenvalues).max(1),
        L_f=Measured(float(np.abs(np.linalg.eigvalsh(mean)).max())),
        mu=Measured(0.0 if low < 1e-9 else low),
        rho=Measured(max(-float(eigenvalues.min()), 0.0) if eigenvalues.min() < -1e-9 else 0.0),
        sigma_l=Measured(noise),
        sigma_g=Measured(float(apart.max()) if same else np.inf),
        sigma_g_mean=Measured(float(max(np.sqrt(np.mean(apart**2)), spread))),
        B=Measured(dissimilarity),
        D=Measured(float(np.linalg.norm(w - star))),
        gap=Measured(float(gap(w))),
        everywhere=EVERYWHERE,
    )
    kind = NoisyQuadratics if noise else Quadratics
    return Problem(kind(a, b, np.full(m, 1 / m)), w, constants, gap, gradient)


def strongly_convex(seed=0, m=8, d=4, low=0.2):
    rng = np.random.default_rng(seed)
    a = np.stack([_hessian(rng, rng.uniform(low, 1, d)) for _ in range(m)])
    return quadratic_problem(a, rng.normal(size=(m, d)) + 1, 2 * rng.normal(size=d))


def convex(seed=0, m=8, d=4):
    """No F_k is strongly convex, and f is flat in one direction."""
    rng = np.random.default_rng(seed)
    q = _basis(rng, d)[:, : d - 1]
    a = np.stack([q @ _hessian(rng, np.r_[0, rng.uniform(0.1, 1, d - 2)]) @ q.T for _ in range(m)])
    return quadratic_problem(a, rng.normal(size=(m, d)) + 1, 2 * rng.normal(size=d))


def indefinite(seed=0, m=8, d=4):
    """Every F_k is a saddle, unbounded below; f is convex, as it must be to have a minimum."""
    rng = np.random.default_rng(seed)
    a = np.zeros((m, d, d))
    while np.linalg.eigvalsh(a.mean(0))[0] < 0.02:
        a = np.stack([_hessian(rng, np.r_[-rng.uniform(0.1, 0.3), rng.uniform(0.4, 1, d - 1)]) for _ in range(m)])
    return quadratic_problem(a, rng.normal(size=(m, d)) + 1, 2 * rng.normal(size=d))


def shifted(seed=0, m=8, d=4, noise=0.0, apart=1.0):
    """The same Hessian everywhere: clients' gradients differ by constants, so that sigma_g is exact."""
    rng = np.random.default_rng(seed)
    a = np.repeat(_hessian(rng, rng.uniform(0.2, 1, d))[None], m, 0)
    return quadratic_problem(a, apart * rng.normal(size=(m, d)) + 1, 2 * rng.normal(size=d), noise)


def shared_optimum(seed=0, m=8, d=4, low=0.6, rise=0.0):
    """Clients differ in their Hessians, but all have their minimum at the same place: B is finite."""
    rng = np.random.default_rng(seed)
    a = np.stack(
        [_hessian(rng, np.r_[rng.uniform(low, 1, d - 1), rng.uniform(low - rise, 1 - rise)]) for _ in range(m)]
    )
    return quadratic_problem(a, np.ones((m, d)), 2 * rng.normal(size=d))


def robust(seed=0, m=6, d=3, rows=5, scale=1.0):
    """Regression with the loss log(1 + r^2), smooth and not convex, with bounded gradients. f* >= 0 is taken as 0."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (m, rows, d))
    y = (
        np.einsum("krd,d->kr", x, rng.normal(size=d))
        + scale * rng.normal(size=(m, 1))
        + 0.1 * rng.normal(size=(m, rows))
    )
    w = 1.5 * rng.normal(size=d)

    def residuals(v):
        return np.einsum("krd,...d->...kr", x, v) - y

    def gap(v):
        return np.log1p(residuals(v) ** 2).mean((-1, -2))

    def each(v):
        r = residuals(v)
        return np.einsum("krd,...kr->...kd", x, 2 * r / (1 + r**2)) / rows

    norms = np.linalg.norm(x, axis=2).mean(1)  # |grad F_k| is at most this: the slope of log(1 + r^2) is at most 1
    L = 2 * np.linalg.eigvalsh(np.einsum("krd,kre->kde", x, x) / rows)[:, -1]
    constants = Constants(
        weights=np.full(m, 1 / m),
        dimension=d,
        L=Measured(float(L.max())),
        L_k=L,
        rho=Measured(float(L.max() / 8)),  # the second derivative of log(1 + r^2) is at least -1/4
        mu=Measured(0.0),
        sigma_l=Measured(0.0),
        sigma_g=Measured(float(norms.max() + norms.mean())),
        sigma_g_mean=Measured(float(np.sqrt(np.mean(norms**2)))),
        G=Measured(float(np.abs(x).max())),
        gap=Measured(float(gap(w))),
        everywhere=EVERYWHERE,
    )

    def loss(v, batch, key):
        x, y = batch
        return jnp.log1p((x @ v - y) ** 2)

    federation = fl.examples((x.reshape(-1, d), y.reshape(-1)), [rows] * m, loss, weights="uniform")
    return Problem(federation, w, constants, gap, lambda v: np.sum(each(v).mean(-2) ** 2, -1))


def points(theorem, problem, steps, solver, rounds, *, cohort=None, seeds=1, algorithm=None, delays=None):
    """[seeds, rounds + 1, d]: where the theorem looks, the start first."""
    algorithm = theorem.configured(steps) if algorithm is None else algorithm
    runs = []
    for seed in range(seeds):
        more = {"cohort": cohort, "seed": seed}
        if delays is None:
            records = fl.simulate(algorithm, problem.federation, solver, problem.w, rounds, **more)
        else:
            records = fl.events(algorithm, problem.federation, solver, problem.w, rounds, system=delays, seed=seed)
        runs.append([problem.w, *(theorem.left.points(record, steps) for record in records)])
    return np.array(runs)
