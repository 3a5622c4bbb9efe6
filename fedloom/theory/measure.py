"""Measuring the constants of theorems on a task: at a point, or the worst over several."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from fedloom.client import Federation, Solver
from fedloom.data.quadratic import Quadratics
from fedloom.metrics.scores import NONNEGATIVE
from fedloom.metrics.scores import loss as loss_metric
from fedloom.native.build import left_out
from fedloom.problem import Vector
from fedloom.tasks import Loaded, Task, load
from fedloom.theory import affine, optimum
from fedloom.theory.constant import UNKNOWN, Constants, Measured, worst
from fedloom.theory.curvature import Spectrum, spectrum
from fedloom.theory.gradients import Differences, differences, noise, of_all

SECOND_ORDER = frozenset({"L", "L_k", "L_f", "mu", "rho"})


def constants(
    where: str | Task | Loaded | Federation,
    *points: ArrayLike,
    solver: Solver | None = None,
    seed: int = 0,
    effort: float = 1.0,
) -> Constants:
    """The constants of theorems at a point, or the worst over several, such as the models of a run.

    Gradients of all clients are computed exactly. Second derivatives and the noise of minibatches are exact for small
    problems; for large ones some clients are looked at, and `notes` says how many.

    Args:
        where: the name of a task, a task, or a federation.
        points: models as flat vectors; by default the task's initial model. D and gap are those of the task's initial
            model; of a federation, which has none, they are those of the first point.
        solver: whose minibatches make sigma_l, sigma_l_j and G: of batch_size examples, without replacement. By default
            that of the task's first setting; without one, or without a batch_size, all examples of a client.
        seed: of a named task's split and initial model, and of all that is drawn here.
        effort: how much may be spent; with 2, twice as many clients are looked at, where not all are.
    """
    if not isinstance(effort, int | float) or not effort > 0:
        raise ValueError(f"effort must be a positive number, got {effort!r}.")
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**31:
        raise ValueError(f"seed must be an integer from 0 to 2^31 - 1, got {seed!r}.")
    if solver is not None and not isinstance(solver, Solver):
        raise ValueError(f"solver must be a solver such as fl.SGD(batch_size=10), got {solver!r:.80}.")
    loaded, federation = _resolved(where, int(seed))
    if loaded is None and not points:
        raise ValueError("A federation has no initial model: give a point, constants(federation, w).")
    at = _checked(points, federation, None if loaded is None else loaded.w)
    measured = _Measuring(federation, loaded, _batch_size(loaded, solver), int(seed), float(effort))
    with left_out():  # kernels in C++ have no second derivatives
        return measured.over(at, at[0] if loaded is None else loaded.w)


def _resolved(where: Any, seed: int) -> tuple[Loaded | None, Federation]:
    if isinstance(where, str):
        where = load(where, seed)
    elif isinstance(where, Task):
        where = where.load(seed)
    if isinstance(where, Loaded):
        return where, where.federation
    if isinstance(where, Federation):
        return None, where
    raise ValueError(
        f"where must be the name of a task, a task or a federation, got a {type(where).__name__}: {where!r:.60}."
    )


def _checked(points: tuple[ArrayLike, ...], federation: Federation, w0: Vector | None) -> list[Vector]:
    if not points:
        assert w0 is not None
        return [w0]
    found: list[Vector] = []
    for i, point in enumerate(points):
        try:
            w = jnp.asarray(point, float if w0 is None else w0.dtype)
        except (TypeError, ValueError) as error:
            raise ValueError(f"Point {i} must be a flat vector, the model w, got {point!r:.60}.") from error
        d = (found[0] if found else w).size if w0 is None else w0.size
        if w.ndim != 1 or w.size != d:
            raise ValueError(f"Point {i} must be a flat vector of {d} parameters, got shape {w.shape}.")
        if not bool(jnp.all(jnp.isfinite(w))):
            raise ValueError(f"Point {i} has entries that are not finite; leave out models of a run that diverged.")
        found.append(w)
    if w0 is None:
        try:
            jax.eval_shape(lambda w: federation.objective(0).grad(w), found[0])
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"Point 0 has {found[0].size} parameters, which do not fit the federation: {error}"
            ) from error
    federation.check(found[0])
    return found


def _batch_size(loaded: Loaded | None, solver: Solver | None) -> int | None:
    if solver is None and loaded is not None:
        settings = [setting for table in loaded.task.settings.values() for setting in table.values()]
        solver = settings[0].solver if settings else None
    return getattr(solver, "batch_size", None)


@dataclasses.dataclass(frozen=True)
class _Measuring:
    federation: Federation
    loaded: Loaded | None
    batch_size: int | None
    seed: int
    effort: float

    @property
    def p(self) -> np.ndarray:
        return np.asarray(self.federation.weights, float)

    def over(self, points: list[Vector], w0: Vector) -> Constants:
        affine_outputs = self.loaded is not None and affine.has_affine_outputs(self.loaded)
        convex = affine_outputs and self.loaded is not None and self.loaded.task.criterion in affine.CONVEX
        different = [differences(self.federation, self.p, w) for w in points]
        found = worst([self.at(w, of) for w, of in zip(points, different, strict=True)])
        if convex:
            assert self.loaded is not None
            found = self.with_bounds(found, self.loaded, different[0].distance)
        start = self.start(found, points, w0, convex)
        notes = found.notes if start.note is None else (*found.notes, start.note)
        return dataclasses.replace(found, D=start.D, gap=start.gap, notes=notes)

    def at(self, w: Vector, of: Differences) -> Constants:
        """All but D and gap, at one point."""
        noisy = noise(self.federation, self.p, w, self.batch_size, of, self.seed, self.effort)
        mean_square = float(np.sum(of.squares))
        B = math.sqrt(1 + mean_square / of.norm**2) if of.norm > 0 else (math.inf if mean_square > 0 else 1.0)
        first_order = Constants(
            weights=self.p,
            dimension=w.size,
            sigma_l=noisy.sigma_l,
            sigma_g=Measured(float(of.distance.max())),
            sigma_g_mean=Measured(math.sqrt(mean_square)),
            sigma_l_j=np.sqrt(noisy.squares),
            sigma_g_j=np.sqrt(of.squares),
            B=Measured(B),
            G=noisy.G,
            notes=() if noisy.note is None else (noisy.note,),
        )
        if self.federation.on_host:
            note = "L, L_k, L_f, mu and rho: unknown, since a model outside JAX has no second derivatives here."
            return dataclasses.replace(first_order, notes=(*first_order.notes, note))
        curved = spectrum(self.federation, self.p, w, of.distance, self.seed, self.effort)
        return self.with_curvature(first_order, curved)

    def with_curvature(self, found: Constants, curved: Spectrum) -> Constants:
        L_k = np.full(len(self.p), np.nan)
        L_k[curved.clients] = curved.largest
        top, low = int(np.argmax(curved.largest)), int(np.argmin(curved.smallest))
        smallest, off = float(curved.smallest[low]), float(curved.smallest_error[low])
        certain = abs(smallest) > off  # else it may as well be 0
        notes = found.notes
        if len(curved.clients) < len(self.p):
            which = of_all(curved.clients, self.p)
            notes = (*notes, f"L, L_k, mu and rho: from {which}; others may be more curved.")
        return dataclasses.replace(
            found,
            L=Measured(float(curved.largest[top]), float(curved.largest_error[top])),
            L_k=L_k,
            L_f=curved.of_f,
            mu=Measured(0.0, 0.0 if certain else off) if smallest < off else Measured(smallest, off),
            rho=Measured(0.0, 0.0 if certain else off) if smallest > -off else Measured(-smallest, off),
            everywhere=SECOND_ORDER if isinstance(self.federation, Quadratics) else frozenset(),
            notes=notes,
        )

    def with_bounds(self, found: Constants, loaded: Loaded, distance: np.ndarray) -> Constants:
        """What holds for all w if outputs are affine and the loss is convex."""
        above = affine.steepest(loaded)
        if above is None:  # squared errors: a quadratic function
            return dataclasses.replace(found, everywhere=SECOND_ORDER)
        factor, steeper = above
        curved = spectrum(steeper, self.p, affine.origin(loaded.w), distance, self.seed, self.effort)
        L_k = np.full(len(self.p), np.nan)
        L_k[curved.clients] = factor * (curved.largest + curved.largest_error)
        L, L_f = float(np.nanmax(L_k)), factor * (curved.of_f.value + curved.of_f.error)
        everyone = len(curved.clients) == len(self.p)
        return dataclasses.replace(
            found,
            L=Measured(L, L - found.L.value),
            L_k=L_k,
            L_f=Measured(L_f, L_f - found.L_f.value),
            mu=Measured(0.0),
            rho=Measured(0.0),
            everywhere=SECOND_ORDER if everyone else frozenset({"mu", "rho"}),
            notes=(
                *(note for note in found.notes if not note.startswith("L, L_k")),
                f"L, L_k and L_f: bounds for all w, from the second moments of {of_all(curved.clients, self.p)}; "
                "at the points themselves L and L_f are the values less their errors.",
            ),
        )

    def start(self, found: Constants, points: list[Vector], w0: Vector, convex: bool) -> optimum.Start:
        if isinstance(self.federation, Quadratics):
            return optimum.of_quadratics(self.federation, w0)
        if convex or found.rho.value == 0:
            start = optimum.of_convex(self.federation, w0, found.mu.value, self.effort)
            if start is not None:
                return start
        if self.loaded is not None and loss_metric(self.loaded.task.criterion).bounds == NONNEGATIVE:
            return optimum.of_nonnegative(self.federation, w0, points)
        why = "a minimum of f is not sought where f is not convex, or where it would take too long"
        return optimum.Start(UNKNOWN, UNKNOWN, f"D and gap: unknown; {why}.")
