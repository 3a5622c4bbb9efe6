"""Quadratic clients: the federation on which everything has a closed form."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.client import Federation, normalised
from fedloom.hyperparameters import frozen
from fedloom.problem import Key, Scalar, Vector


class Quadratic(NamedTuple):
    """F(w) = 1/2 (w - center)^T hessian (w - center), as one example."""

    hessian: jax.Array
    center: Vector

    @property
    def size(self) -> int:
        return 1

    @property
    def capacity(self) -> int:
        return 1

    def unravel(self, w: Vector) -> Vector:
        return w

    def loss(self, w: Vector) -> Scalar:
        return (w - self.center) @ self.hessian @ (w - self.center) / 2

    def grad(self, w: Vector) -> Vector:
        return self.hessian @ (w - self.center)

    def batch_grad(self, params: Vector, positions: jax.Array, mask: jax.Array, key: Key) -> Vector:
        return self.grad(params)


@frozen
class Quadratics(Federation):
    """Client k has F_k(w) = 1/2 (w - center_k)^T hessian_k (w - center_k). Make one with `quadratics`."""

    hessians: Any
    centers: Any
    weights: Any

    def objective(self, k: Scalar) -> Quadratic:
        return Quadratic(jnp.asarray(self.hessians)[k], jnp.asarray(self.centers)[k])

    def optimum(self) -> np.ndarray:
        """w* in closed form: (sum_k p_k hessian_k)^{-1} sum_k p_k hessian_k center_k."""
        p, a, b = (np.asarray(x, float) for x in (self.weights, self.hessians, self.centers))
        return np.linalg.solve(np.einsum("k,kij->ij", p, a), np.einsum("k,kij,kj->i", p, a, b))


def quadratics(clients: int = 7, dimension: int = 4, seed: int = 0, condition: float = 10.0) -> Quadratics:
    """Random heterogeneous clients with unequal weights, whose Hessians do not commute.

    Eigenvalues lie in [1/condition, 1]. Homogeneous or commuting clients, equal weights and an optimum at the origin
    would each hide a class of errors, so none of these is offered.
    """
    if clients < 1 or dimension < 1 or not condition >= 1:
        raise ValueError(
            "quadratics: clients and dimension must be positive integers and condition at least 1, "
            f"got {clients}, {dimension} and {condition}."
        )
    rng = np.random.default_rng(seed)
    hessians = np.empty((clients, dimension, dimension))
    for k in range(clients):
        basis, _ = np.linalg.qr(rng.normal(size=(dimension, dimension)))
        eigenvalues = np.exp(rng.uniform(-np.log(condition), 0, dimension))
        hessians[k] = basis @ np.diag(eigenvalues) @ basis.T
    centers = rng.normal(size=(clients, dimension)) + 1
    weights = normalised(rng.uniform(0.5, 2, clients), clients)
    return Quadratics(hessians, centers, weights)
