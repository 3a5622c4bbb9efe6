"""Regularizers g with their exact proximal operators, prox_{step g}(v) = argmin_x g(x) + |x - v|^2 / (2 step).

Squared norms carry a factor 1/2. Constraints are regularizers too: 0 inside, infinity outside, and their prox is the
projection whatever the step.
"""

from abc import ABC, abstractmethod

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.hyperparameters import Domain, check_fields, finite, frozen, hyper, positive, static
from fedloom.hyperparameters import nonnegative as not_negative
from fedloom.problem import Scalar, Vector


class Regularizer(ABC):
    """g : R^d -> R, convex."""

    @abstractmethod
    def value(self, w: Vector) -> Scalar:
        """g(w)."""

    @abstractmethod
    def prox(self, v: Vector, step: Scalar) -> Vector:
        """argmin_x g(x) + |x - v|^2 / (2 step)."""


def _indicator(inside: jax.Array) -> Scalar:
    return jnp.where(inside, 0.0, jnp.inf)


def _tolerance(w: Vector) -> float:
    """Relative rounding room when asking whether a projected point satisfies its constraint."""
    return float(jnp.finfo(w.dtype).eps) ** 0.5  # type: ignore[no-untyped-call]


def _unit(size: Vector) -> Vector:
    """A power of two of about this size: in such units squares neither overflow nor vanish, and division is exact."""
    return jnp.ldexp(jnp.ones_like(size), jnp.frexp(size)[1] - 1)


def _onto_simplex(v: Vector, scale: Scalar) -> Vector:
    """The nearest point with non-negative coordinates that sum to scale: max(v - theta, 0) for the right theta.

    Coordinates and their sum are right to a few roundings of scale, however large v is: we work with differences in
    units of scale.

    optax.projections has it too, but fails on float32 models where float64 is enabled.
    """
    scale = jnp.asarray(scale, v.dtype)
    v_sorted = jnp.sort(v, descending=True)
    u = jnp.maximum((v_sorted - v_sorted[0]) / scale, -1)  # whatever is below -1 becomes 0 anyway
    theta = (jnp.cumsum(u) - 1) / jnp.arange(1, v.size + 1, dtype=v.dtype)
    least = v_sorted[jnp.sum(u > theta) - 1]  # the smallest coordinate that stays positive; the largest always does
    x = (v - least) / scale
    # Newton's method for a sum of 1. One step suffices unless rounding has changed which coordinates stay positive.
    for _ in range(2):
        x = x - (jnp.sum(jnp.maximum(x, 0)) - 1) / jnp.sum(x >= 0).astype(v.dtype)
    return scale * jnp.maximum(x, 0)


def _onto_l1_ball(v: Vector, radius: Scalar) -> Vector:
    inside = jnp.sum(jnp.abs(v)) <= radius
    return jnp.where(inside, v, jnp.sign(v) * _onto_simplex(jnp.abs(v), radius))


@frozen
class none(Regularizer):
    """g = 0."""

    def value(self, w: Vector) -> Scalar:
        return jnp.zeros((), w.dtype)

    def prox(self, v: Vector, step: Scalar) -> Vector:
        return v


@frozen
class l1(Regularizer):
    """g(w) = strength * |w|_1."""

    strength: float = hyper(not_negative, "weight of the penalty", default=0.01)

    def value(self, w: Vector) -> Scalar:
        return self.strength * jnp.sum(jnp.abs(w))

    def prox(self, v: Vector, step: Scalar) -> Vector:
        return jnp.sign(v) * jnp.maximum(jnp.abs(v) - step * self.strength, 0)


_sizes = Domain(
    "a tuple of group sizes, or () for one group",
    lambda v: isinstance(v, tuple) and all(isinstance(n, int) and n > 0 for n in v),
)


@frozen
class l2(Regularizer):
    """g(w) = strength * sum over groups of |w_group|_2; the groups are consecutive, for example one for each tensor."""

    strength: float = hyper(not_negative, "weight of the penalty", default=0.01)
    groups: tuple[int, ...] = static(_sizes, "group sizes, in order; () is one group of everything", default=())

    def _norms(self, w: Vector) -> tuple[Vector, np.ndarray]:
        """The norm of each group, and the group of each coordinate."""
        sizes = self.groups or (w.size,)
        if sum(sizes) != w.size:
            raise ValueError(f"l2: groups add up to {sum(sizes)} coordinates, but the model has {w.size}.")
        group = np.repeat(np.arange(len(sizes)), sizes)
        unit = _unit(jax.ops.segment_max(jnp.abs(w), group, num_segments=len(sizes)))
        return unit * jnp.sqrt(jax.ops.segment_sum((w / unit[group]) ** 2, group, num_segments=len(sizes))), group

    def value(self, w: Vector) -> Scalar:
        return self.strength * jnp.sum(self._norms(w)[0])

    def prox(self, v: Vector, step: Scalar) -> Vector:
        norms, group = self._norms(v)
        kept = jnp.maximum(norms - step * self.strength, 0)
        return v * (kept / jnp.where(norms > 0, norms, 1))[group]


@frozen
class squared_l2(Regularizer):
    """g(w) = strength/2 * |w|_2^2."""

    strength: float = hyper(not_negative, "weight of the penalty", default=0.01)

    def value(self, w: Vector) -> Scalar:
        return self.strength / 2 * jnp.sum(w**2)

    def prox(self, v: Vector, step: Scalar) -> Vector:
        return v / (1 + step * self.strength)


@frozen
class elastic_net(Regularizer):
    """g(w) = l1 * |w|_1 + l2/2 * |w|_2^2."""

    l1: float = hyper(not_negative, "weight of the absolute values", default=0.01)
    l2: float = hyper(not_negative, "weight of half the squares", default=0.01)

    def value(self, w: Vector) -> Scalar:
        return self.l1 * jnp.sum(jnp.abs(w)) + self.l2 / 2 * jnp.sum(w**2)

    def prox(self, v: Vector, step: Scalar) -> Vector:
        shrunk = jnp.sign(v) * jnp.maximum(jnp.abs(v) - step * self.l1, 0)
        return shrunk / (1 + step * self.l2)


@frozen
class l_inf(Regularizer):
    """g(w) = strength * max_j |w_j|."""

    strength: float = hyper(not_negative, "weight of the penalty", default=0.01)

    def value(self, w: Vector) -> Scalar:
        return self.strength * jnp.max(jnp.abs(w))

    def prox(self, v: Vector, step: Scalar) -> Vector:
        # Moreau: what the prox removes is the projection onto the ball of the dual norm.
        radius = jnp.asarray(step * self.strength, v.dtype)
        acts = radius >= jnp.finfo(v.dtype).tiny  # type: ignore[no-untyped-call]
        return jnp.where(acts, v - _onto_l1_ball(v, jnp.where(acts, radius, 1)), v)


@frozen
class box(Regularizer):
    """low <= w_j <= high."""

    low: float = hyper(finite, "lower bound", default=-1.0)
    high: float = hyper(finite, "upper bound", default=1.0)

    def __post_init__(self) -> None:
        check_fields(self)
        bounds = (self.low, self.high)
        if not any(isinstance(b, jax.core.Tracer) for b in bounds) and np.any(np.asarray(self.low) > self.high):
            raise ValueError(f"box: low must not be larger than high, got low = {self.low} and high = {self.high}.")

    def value(self, w: Vector) -> Scalar:
        return _indicator(jnp.all((w >= self.low) & (w <= self.high)))

    def prox(self, v: Vector, step: Scalar) -> Vector:
        return jnp.clip(v, self.low, self.high)


@frozen
class nonnegative(Regularizer):
    """w_j >= 0."""

    def value(self, w: Vector) -> Scalar:
        return _indicator(jnp.all(w >= 0))

    def prox(self, v: Vector, step: Scalar) -> Vector:
        return jnp.maximum(v, 0)


@frozen
class simplex(Regularizer):
    """w_j >= 0 and sum_j w_j = scale."""

    scale: float = hyper(positive, "what the coordinates add up to", default=1.0)

    def value(self, w: Vector) -> Scalar:
        off = jnp.abs(jnp.sum(w) - self.scale)
        return _indicator(jnp.all(w >= 0) & (off <= _tolerance(w) * self.scale))

    def prox(self, v: Vector, step: Scalar) -> Vector:
        return _onto_simplex(v, self.scale)


@frozen
class l1_ball(Regularizer):
    """|w|_1 <= radius."""

    radius: float = hyper(positive, "radius of the ball", default=1.0)

    def value(self, w: Vector) -> Scalar:
        return _indicator(jnp.sum(jnp.abs(w)) <= self.radius * (1 + _tolerance(w)))

    def prox(self, v: Vector, step: Scalar) -> Vector:
        return _onto_l1_ball(v, self.radius)


@frozen
class l2_ball(Regularizer):
    """|w|_2 <= radius."""

    radius: float = hyper(positive, "radius of the ball", default=1.0)

    def value(self, w: Vector) -> Scalar:
        unit = _unit(jnp.max(jnp.abs(w)))
        return _indicator(unit * jnp.linalg.norm(w / unit) <= self.radius * (1 + _tolerance(w)))

    def prox(self, v: Vector, step: Scalar) -> Vector:
        unit = _unit(jnp.max(jnp.abs(v)))
        u = v / unit
        norm = jnp.linalg.norm(u)
        return jnp.where(unit * norm <= self.radius, v, u * (self.radius / jnp.maximum(norm, 1)))  # norm >= 1 outside


REGULARIZERS: dict[str, type[Regularizer]] = {
    "none": none,
    "l1": l1,
    "l2": l2,
    "squared-l2": squared_l2,
    "elastic-net": elastic_net,
    "l-inf": l_inf,
    "box": box,
    "nonnegative": nonnegative,
    "simplex": simplex,
    "l1-ball": l1_ball,
    "l2-ball": l2_ball,
}
