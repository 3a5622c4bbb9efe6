"""Modules of PyTorch as models: by calls to PyTorch, or compiled by torchax."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fedloom.loss import Coupled
from fedloom.metrics.torch_losses import in_torch
from fedloom.models.model import Model
from fedloom.problem import Key, Vector
from fedloom.pytorch import check_installed


def from_torch(module: Any, x: Any, name: str | None = None, *, compile: bool | None = None) -> Model:
    """A PyTorch module, with a batch x as an example of its inputs.

    Its parameters are one flat vector, in the order of module.named_parameters(). Those that do not require a gradient,
    and buffers, are constants. In training the module is in training mode, and dropout follows from the client's key.
    `Model.own(params)` is a state_dict.

    Args:
        module: an nn.Module, whose present weights are the initial model of every seed; or a function without arguments
            that makes one, so that each seed has its own. The module is copied, and not changed.
        x: an array, or a tuple of arrays for module(*x), of the shape and type of a batch; values hardly matter.
        name: of the model; the module's class if not given.
        compile: True compiles it with torchax, False calls PyTorch; None compiles where that works and is fast.
    """
    check_installed()
    from fedloom.pytorch.checks import check_module, is_module, made
    from fedloom.pytorch.module import Given, Host, Maker

    first = module if is_module(module) else made(module)
    name = name or type(first).__name__
    x = check_module(first, _batch(x), name)
    host = Host(first, name)
    init = Given(host) if first is module else Maker(module, host)
    if (model := _compiled(host, init, x, compile)) is not None:
        return model
    return Model(name, init, host.apply, _summed(host), host.state_dict, ("torch",), "PyTorch by callbacks")


def _batch(x: Any) -> Any:
    """Arrays of NumPy that nobody else has."""
    arrays = jax.tree.map(lambda a: np.array(np.asarray(a), order="C"), x if isinstance(x, tuple) else (x,))
    if any(a.dtype.kind not in "biuf" for a in jax.tree.leaves(arrays)):
        raise ValueError("from_torch: x must be an array of numbers, or a tuple of such arrays.")
    return arrays if isinstance(x, tuple) else arrays[0]


def _summed(host: Any) -> Callable[[Any], Callable[..., jax.Array]]:
    """From a criterion to the loss of a batch: in one call if PyTorch knows the criterion."""
    from fedloom.pytorch.total import InJax, Total

    def summed(criterion: Any) -> Callable[..., jax.Array]:
        coupled = isinstance(criterion, Coupled)
        of = criterion.of if coupled else criterion
        loss = in_torch(of)
        return InJax(host, of, coupled) if loss is None else Total(host, loss, coupled)

    return summed


def _compiled(host: Any, init: Callable[[Key], Vector], x: Any, wanted: bool | None) -> Model | None:
    if wanted is False:
        return None
    from fedloom.pytorch.compiled import CannotCompile, compiled, versions

    try:
        found = compiled(host, x, slowly=bool(wanted))
    except CannotCompile as why:
        if wanted:
            raise ValueError(
                f"{host.name} is not compiled: {why} ({versions()}). Leave compile out to call PyTorch instead."
            ) from why
        return None

    def own(params: list[jax.Array]) -> dict[str, Any]:
        return host.state_dict(np.concatenate([np.ravel(p) for p in params]))

    def make(key: Key) -> list[jax.Array]:
        return found.unravel(init(key))

    return Model(
        host.name, make, found.apply, own=own, packages=("torch", "torchax"), how="PyTorch compiled by torchax"
    )
