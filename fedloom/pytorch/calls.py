"""Calls from a compiled program to functions of the host, which get tensors.

Such a function must not use JAX: on a CPU it may run on the very thread that JAX would wait for.
"""

import contextlib
import dataclasses
import hashlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.custom_derivatives import CustomVJPPrimal, SymbolicZero
from jax.experimental.buffer_callback import buffer_callback

from fedloom.problem import Key

Tree = Any

# One call at a time: PyTorch's generator, and the modules whose parameters are exchanged for a call, are shared.
turn = threading.Lock()


@dataclasses.dataclass(frozen=True)
class _InPlace:
    """f(out, *args) on the buffers of a program; equal for equal functions, so that programs are shared."""

    f: Callable[..., None]

    def __call__(self, context: Any, out: Tree, *args: Tree) -> None:
        self.f(*jax.tree.map(np.asarray, (out, *args)))


@dataclasses.dataclass(frozen=True)
class _ByValue:
    """f(out, *args) with results that are handed back."""

    f: Callable[..., None]
    shapes: tuple[Any, ...]
    structure: Any

    def __call__(self, *args: Tree) -> Tree:
        out = jax.tree.unflatten(self.structure, [np.empty(shape, dtype) for shape, dtype in self.shapes])
        self.f(out, *jax.tree.map(np.array, args))
        return out


def in_memory() -> bool:
    """Whether the host can work on the memory of programs."""
    return jax.default_backend() == "cpu"


def call(f: Callable[..., None], out: Tree, *args: Tree) -> Tree:
    """The arrays that f(out, *args) fills, given their shapes and types.

    If it can, f works on the program's own memory, without copies: it must write into `out` only, and keep nothing.
    """
    args = jax.tree.map(jnp.asarray, args)
    if in_memory():
        return buffer_callback(_InPlace(f), out, vmap_method="sequential")(*args)
    leaves, structure = jax.tree.flatten(out)
    shapes = tuple((leaf.shape, np.dtype(leaf.dtype)) for leaf in leaves)
    return jax.pure_callback(_ByValue(f, shapes, structure), out, *args, vmap_method="sequential")


def like(x: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def derivative_in_first(value: Callable[..., Any], forward: Callable[..., Any], back: Callable[..., Any]) -> Any:
    """value(w, *others) with its derivative in w alone; one in anything else is refused, since it would come out as 0.

    Args:
        value: what is called without derivatives.
        forward: forward(w, *others) gives the value, and what `back` needs.
        back: back(saved, cotangent) gives the cotangent of w.
    """
    of = jax.custom_vjp(value)

    def first(*args: Any) -> Any:
        is_primal: Any = lambda x: isinstance(x, CustomVJPPrimal)  # noqa: E731
        if any(leaf.perturbed for leaf in jax.tree.leaves(args[1:], is_leaf=is_primal)):
            raise ValueError("PyTorch is asked for derivatives in the parameters only, not in inputs or labels.")
        value, saved = forward(*jax.tree.map(lambda x: x.value, args, is_leaf=is_primal))
        return value, (saved, jax.tree.map(lambda x: None, args[1:], is_leaf=is_primal))

    def second(saved: Any, cotangent: Any) -> Any:
        kept, others = saved
        if isinstance(cotangent, SymbolicZero):
            cotangent = jnp.zeros(cotangent.shape, cotangent.dtype)
        return back(kept, cotangent), *others

    of.defvjp(first, second, symbolic_zeros=True)
    return of


def brief(error: Exception) -> str:
    """The first line of what an error says, to be continued in a sentence."""
    return (str(error).splitlines() or [type(error).__name__])[0].removesuffix(".")


def bits(key: Key | None) -> jax.Array | None:
    """A key as numbers that the host understands."""
    return None if key is None else jax.random.key_data(key)


def seed_of(bits: np.ndarray, *more: int) -> int:
    """A seed for PyTorch's generator that depends on all bits of a key, and on more numbers."""
    content = np.asarray(bits).tobytes() + repr(more).encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little") >> 1


@contextlib.contextmanager
def seeded(bits: np.ndarray | None) -> Iterator[None]:
    """PyTorch's own generator starts from a key, and is left as it was found; it must be this thread's turn."""
    if bits is None:
        yield
        return
    generator = torch.default_generator
    before = generator.get_state()
    generator.manual_seed(seed_of(bits))
    try:
        yield
    finally:
        generator.set_state(before)


def floats_as(dtype: Any, arrays: Tree) -> Tree:
    """Arrays of a program, with floats of the given type."""

    def cast(x: Any) -> jax.Array:
        x = jnp.asarray(x)
        return x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x

    return jax.tree.map(cast, arrays)


def tensors(arrays: Tree, keep: np.ndarray | None = None) -> Tree:
    """Copies of arrays, or of the rows where `keep` is True, as tensors; integers as int64, as PyTorch has labels."""
    if isinstance(arrays, np.ndarray):
        return tensor(arrays if keep is None else arrays[keep])
    return jax.tree.map(lambda x: tensors(x, keep), arrays)


def tensor(array: np.ndarray) -> torch.Tensor:
    whole = torch.from_numpy(array)
    return whole.to(torch.int64, copy=True) if array.dtype.kind in "iu" else whole.clone()
