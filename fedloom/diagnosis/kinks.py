"""Losses with kinks, about which no theorem here says anything."""

import jax

from fedloom.native.build import left_out
from fedloom.tasks import Loaded


def kinks(loaded: Loaded) -> list[str]:
    """A sentence if the model has rectified linear units: gradients jump there, and no L bounds the jump.

    The loss is traced, not computed. Kinks of other kinds are not noticed.
    """
    if loaded.federation.on_host:
        return []
    with left_out():
        program = jax.make_jaxpr(lambda w: loaded.federation.objective(0).loss(w))(loaded.w)
    return ["The model has ReLUs, at which gradients jump: no F_k is smooth."] if "relu" in str(program) else []
