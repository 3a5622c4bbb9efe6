"""What can be wrong with a module, found when it is brought, with a sentence for each."""

import copy
import inspect
from typing import Any

import jax
import numpy as np
import torch

from fedloom.pytorch.calls import brief, seeded, tensors, turn
from fedloom.pytorch.module import FLOATS, checked_outputs, make_seeded, trainable

Tree = Any
SEED = np.zeros(2, np.uint32)  # of jax.random.key(0)


def is_module(value: Any) -> bool:
    return isinstance(value, torch.nn.Module)


def made(make: Any) -> torch.nn.Module:
    """The module that a function makes for jax.random.key(0), which stands for those of all keys."""
    if not callable(make):
        raise ValueError(f"from_torch takes an nn.Module, or a function that makes one, got {make!r:.80}.")
    try:
        inspect.signature(make).bind()
    except TypeError as error:
        raise ValueError(
            f"from_torch: the function that makes a module is called without arguments: {brief(error)}."
        ) from error
    found = make_seeded(make, SEED)
    if not is_module(found):
        raise ValueError(f"from_torch: the function must make an nn.Module, but returns {found!r:.80}.")
    return found


def check_module(module: torch.nn.Module, x: Tree, name: str) -> Tree:
    """Raise a ValueError if the module cannot be a model.

    x is a batch of its inputs, as NumPy arrays; it is returned with floats of the type of the parameters.
    """
    dtype = _check_parameters(module, name)
    x = jax.tree.map(lambda a: a.astype(dtype) if a.dtype.kind == "f" else a, x)
    rows = _rows(x, name)
    with turn, seeded(SEED), torch.no_grad():
        tried = _copied(module, name).train()
        kept = [f"{n or name} is a {type(m).__name__}" for n, m in tried.named_modules() if _keeps_statistics(m)]
        _refuse_state(name, kept)
        before = {n: t.detach().clone() for n, t in _constants(tried)}
        weights = [p.detach().clone() for p in trainable(tried)]
        checked_outputs(tried, name, tensors(x), rows)
        _refuse_state(name, [f"{n} changes in training" for n, t in _constants(tried) if not _same(t, before[n])])
        if not all(map(_same, trainable(tried), weights)):
            raise ValueError(f"{name} changes its own parameters when it is called, which only a solver may do.")
        first = jax.tree.map(lambda a: a[:1], x)
        checked_outputs(tried.eval(), name, tensors(first), 1)
    return x


def _check_parameters(module: torch.nn.Module, name: str) -> Any:
    """The float type that all parameters have."""
    if any(map(torch.nn.parameter.is_lazy, module.parameters())):
        raise ValueError(f"{name} has parameters without a shape yet; call it once on a batch before you bring it.")
    parameters = trainable(module)
    if not parameters:
        raise ValueError(f"{name} has no parameters that require a gradient, so that there is nothing to train.")
    if elsewhere := {str(t.device) for t in [*module.parameters(), *module.buffers()] if t.device.type != "cpu"}:
        raise ValueError(f"{name} is on {', '.join(sorted(elsewhere))}; bring it as module.cpu().")
    kinds = {p.dtype for p in parameters}
    if len(kinds) > 1 or not kinds <= set(FLOATS):
        found = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))
        raise ValueError(f"{name}: parameters must all be float32 or all float64, got {found}; use module.float().")
    if kinds == {torch.float64} and jax.dtypes.canonicalize_dtype(np.float64) != np.float64:
        raise ValueError(
            f"{name}: its parameters are float64, but JAX computes in float32; use module.float(), or switch on "
            "jax.config.update('jax_enable_x64', True)."
        )
    return FLOATS[kinds.pop()]


def _rows(x: Tree, name: str) -> int:
    rows = {leaf.shape[0] if leaf.ndim else 0 for leaf in jax.tree.leaves(x)}
    if len(rows) != 1 or rows == {0}:
        raise ValueError(f"{name}: x must be a batch of inputs, with a row for each example in all of its arrays.")
    return rows.pop()


def _copied(module: torch.nn.Module, name: str) -> torch.nn.Module:
    try:
        return copy.deepcopy(module)
    except Exception as error:
        raise ValueError(f"{name} cannot be copied with copy.deepcopy: {brief(error)}.") from error


def _keeps_statistics(module: torch.nn.Module) -> bool:
    """Whether a layer averages over batches, as BatchNorm does, and will go on doing so in training."""
    return module.training and getattr(module, "running_mean", None) is not None


def _constants(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    own = {id(p) for p in trainable(module)}
    return [(n, t) for n, t in [*module.named_parameters(), *module.named_buffers()] if id(t) not in own]


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and bool(torch.all((a == b) | ((a != a) & (b != b))))


def _refuse_state(name: str, kinds: list[str]) -> None:
    """Refuse what is neither a parameter nor constant: a method would not know how to average it."""
    if kinds:
        raise ValueError(
            f"{name} keeps state besides its parameters ({', '.join(kinds)}), which federated methods do not average; "
            "replace BatchNorm by GroupNorm or LayerNorm, and spectral_norm by weight_norm."
        )
