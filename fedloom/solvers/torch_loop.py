"""A training loop of PyTorch as a solver."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fedloom.client import Federation, Objective, Solver, portion
from fedloom.hyperparameters import Domain, check_fields, count, frozen, optional, static
from fedloom.problem import Key, Problem, Scalar, Solution
from fedloom.pytorch import check_installed

_makes_optimizer = Domain(
    "a function that makes an optimizer of parameters, such as lambda p: torch.optim.Adam(p, lr=1e-3)", callable
)
_loop = Domain("a function train(module, optimizer, batches)", callable)


@frozen
class TorchLoop(Solver):
    """An optimizer and a training loop of PyTorch, for a PyTorch model; a solve is one call.

    Without `train` the loop is the usual one: for each batch zero_grad, the task's criterion, backward, step. One of
    your own gets the module, the optimizer, whose state starts afresh in every solve, and the client's batches: each
    pass over `batches` gives pairs (x, y) of tensors in a new random order. What it returns is not used.

    Before each step of the optimizer the gradient of <linear, v> + mu/2 |v - anchor|^2 is added, so that every method
    works; a loop must take its steps with that optimizer. Rows that are stored are prepared once for each solve.

    It cannot do a part of its work (for stragglers) if `train` is given, and knows the sum of its step sizes (for
    SCAFFOLD's option II) only for plain torch.optim.SGD without `train`. It counts an example gradient for every row of
    every forward pass that can be differentiated.
    """

    optimizer: Callable[[Any], Any] = static(_makes_optimizer, "makes an optimizer of parameters")
    train: Callable[..., object] | None = static(optional(_loop), "a loop of one's own", default=None)
    epochs: int = static(count, "passes over the local examples, without `train`", default=1, kw_only=True)
    batch_size: int | None = static(optional(count), "examples in a batch; None takes all", default=10, kw_only=True)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.train is not None and self.epochs != 1:
            raise ValueError("TorchLoop: `train` makes its own passes over the batches; leave epochs out.")

    @property
    def offers(self) -> frozenset[str]:
        if self.train is not None:
            return frozenset()
        check_installed()
        from fedloom.pytorch.loop import adds_up

        return frozenset({"work", "lr_sum"} if adds_up(self.optimizer) else {"work"})

    def check(self, federation: Federation) -> None:
        from fedloom.pytorch.total import InJax, Total

        outside = getattr(getattr(federation, "loss_of", None), "outside", None)
        total = None if outside is None else outside.total
        if not isinstance(total, Total | InJax):
            raise ValueError(
                "TorchLoop needs a task whose model is fl.models.from_torch(module, x, compile=False); use SGD, or "
                "another solver, for this one."
            )
        if isinstance(total, InJax) and self.train is None:
            raise ValueError(
                "TorchLoop: the task's criterion is a function of JAX, which PyTorch cannot differentiate; give it as "
                "fl.metrics.from_torch(loss), or give a `train` of your own."
            )

    def solve(self, problem: Problem, objective: Objective, key: Key, t: Scalar, work: Scalar) -> Solution:
        from fedloom.pytorch.calls import bits, call, like
        from fedloom.pytorch.loop import Loop

        local: Any = objective  # `check` has seen that it has rows and a loss of PyTorch
        outside = local.loss_of.outside
        x, y, key = outside.prepare(local.rows(), key)
        start, terms = jnp.asarray(problem.start), problem.terms()
        given = {
            **{"x": x, "y": y, "size": local.size, "bits": bits(key), "start": start},
            **{"linear": terms.linear, "anchor": terms.anchor, "mu": terms.mu},
            "epochs": portion(work, self.epochs),
        }
        out = (like(start), jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((), start.dtype))
        loop = Loop(outside.total, self.optimizer, self.train, self.batch_size)
        w, gradients, lr_sum = call(loop, out, given)
        return Solution(w, gradients, lr_sum if "lr_sum" in self.offers else jnp.nan)
