"""A module compiled by torchax: the same forward pass as a function of JAX, where an installed version can do it."""

import contextlib
import copy
import importlib
import importlib.metadata
import os
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from fedloom.problem import Key, Vector
from fedloom.pytorch.calls import brief, floats_as, tensors
from fedloom.pytorch.module import Host, flat, inputs

Tree = Any

# A module is traced by one thread at a time. Not the turn of calls: a trace may wait for a program that calls.
tracing = threading.Lock()
# XLA's own operations for these are many times slower on a CPU than PyTorch's; recurrent layers are unrolled.
SLOW_ON_CPU = ("conv_general_dilated", "reduce_window")
TOLERANCE = {np.float32: 1e-3, np.float64: 1e-9}  # of outputs and gradients, relative to the largest


class CannotCompile(Exception):
    """Why a module is not compiled."""


def library() -> Any:
    """torchax, without its telemetry, and without what else its import changes in PyTorch."""
    os.environ.setdefault("ENABLE_RUNTIME_UPTIME_TELEMETRY", "0")  # torchax would set it to 1
    fast = torch.backends.mha.get_fastpath_enabled()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module("torchax")
    except Exception as error:  # a version that does not fit the installed PyTorch may fail in any way
        raise CannotCompile(f"torchax cannot be imported: {brief(error)}") from error
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def versions() -> str:
    found = []
    for package in ("torch", "torchax"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{package} {importlib.metadata.version(package)}")
    return ", ".join(found)


class Compiled:
    """A module as a function of its trainable parameters, a list of arrays in the order of the flat vector."""

    def __init__(self, host: Host):
        self.host, self.env = host, library().default_env()
        self.module = copy.deepcopy(host.module)
        named = dict(self.module.named_parameters())
        self.names = [name for name, p in named.items() if p.requires_grad]
        rest = {**named, **dict(self.module.named_buffers())}
        self.constants = {n: t.detach().numpy().copy() for n, t in rest.items() if n not in self.names}
        self.shapes = [tuple(named[name].shape) for name in self.names]

    def unravel(self, w: Vector) -> list[jax.Array]:
        parts = jnp.split(w, np.cumsum(self.host.sizes)[:-1].tolist())
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def apply(self, params: list[jax.Array], x: Tree, key: Key | None) -> jax.Array:
        x = floats_as(self.host.dtype, x)
        arrays = {**dict(zip(self.names, params, strict=True)), **jax.tree.map(jnp.asarray, self.constants)}
        with tracing, self._environment(jax.random.key(0) if key is None else key):
            self.module.train(key is not None)
            x, arrays = self.env.j2t_iso((inputs(x), arrays))
            outputs = torch.func.functional_call(self.module, arrays, x)
        return self.env.t2j_iso(outputs)

    @contextlib.contextmanager
    def _environment(self, key: Key) -> Iterator[None]:
        """Where PyTorch's functions are JAX's, random numbers come from the key, and shapes mix as PyTorch has it."""
        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)  # it would leave the environment
        try:
            with self.env.override_property(prng=key), jax.numpy_rank_promotion("allow"), self.env:
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)


def compiled(host: Host, x: Tree, slowly: bool) -> Compiled:
    """The module of the host in JAX, if it gives what PyTorch gives on a batch like x. Raises CannotCompile if not.

    Args:
        slowly: also if XLA is known to be much slower than PyTorch.
    """
    found = Compiled(host)
    params, like, key = found.unravel(jnp.asarray(_near(host))), _like(x), jax.random.key(0)
    try:
        shape = jax.eval_shape(lambda: found.apply(params, like, key))  # in training
        if not slowly:
            check_fast(found, params, like)
    except CannotCompile:
        raise
    except Exception as error:
        raise CannotCompile(f"torchax cannot compile it: {brief(error)}") from error
    if not isinstance(shape, jax.ShapeDtypeStruct) or shape.dtype != host.dtype:
        raise CannotCompile("torchax gives outputs of another type")
    if not agrees(found, params, like):
        raise CannotCompile("torchax gives other numbers than PyTorch")
    return found


def _near(host: Host) -> np.ndarray:
    """Parameters near the initial ones, where nothing is zero by chance."""
    rng = np.random.default_rng(0)
    return flat(host.parameters) + rng.normal(scale=0.01, size=host.size).astype(host.dtype)


def _like(x: Tree) -> Tree:
    """Inputs of the same shapes; floats are random, since those of an example may all be zero."""
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda a: rng.normal(size=a.shape).astype(a.dtype) if a.dtype.kind == "f" else a, x)


def agrees(found: Compiled, params: list[jax.Array], x: Tree) -> bool:
    """Does it give PyTorch's outputs, and the gradients of half their squares?"""
    host = found.host
    w = np.concatenate([np.asarray(p).ravel() for p in params])
    gradient = np.empty(host.size, host.dtype)
    with host.at(w, None), torch.enable_grad():
        outputs = host.module(*inputs(tensors(x)))
        host.gradient(gradient, torch.sum(outputs**2) / 2)

    def half_square(params: list[jax.Array]) -> tuple[jax.Array, jax.Array]:
        outputs = found.apply(params, x, None)
        return jnp.sum(outputs**2) / 2, outputs

    try:
        back, forward = jax.jit(jax.grad(half_square, has_aux=True))(params)
    except Exception as error:
        raise CannotCompile(f"torchax cannot compile it: {brief(error)}") from error
    pairs = [(outputs.detach().numpy(), forward), (gradient, np.concatenate([np.ravel(g) for g in back]))]
    return all(np.shape(a) == np.shape(b) and _close(a, np.asarray(b), TOLERANCE[host.dtype]) for a, b in pairs)


def _close(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    return bool(np.max(np.abs(a - b), initial=0) <= tolerance * max(float(np.max(np.abs(a), initial=0)), 1e-30))


def check_fast(found: Compiled, params: list[jax.Array], x: Tree) -> None:
    """Raise CannotCompile if XLA would be much slower than PyTorch: with convolutions or recurrent layers, on a CPU."""
    if jax.default_backend() != "cpu":
        return
    if any(isinstance(m, torch.nn.RNNBase) for m in found.module.modules()):
        raise CannotCompile("recurrent layers are slow when compiled for a CPU")
    program = jax.make_jaxpr(lambda params: found.apply(params, x, None))(params)
    if any(name in str(program) for name in SLOW_ON_CPU):
        raise CannotCompile("convolutions are slow when compiled for a CPU")
