"""A module as functions of the flat vector of its trainable parameters."""

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from fedloom.problem import Key, Vector
from fedloom.pytorch.calls import bits, brief, call, derivative_in_first, floats_as, like, seeded, tensor, tensors, turn

Tree = Any
FLOATS = {torch.float32: np.float32, torch.float64: np.float64}


def inputs(x: Tree) -> tuple[Any, ...]:
    """What a module is called with: the arrays of a tuple are its arguments."""
    return x if isinstance(x, tuple) else (x,)


def trainable(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The parameters that are trained, each once, in the order of `named_parameters`."""
    return [p for p in module.parameters() if p.requires_grad]


def flat(parameters: list[torch.nn.Parameter]) -> np.ndarray:
    """The values of parameters as one new vector."""
    return torch.cat([p.detach().reshape(-1) for p in parameters]).numpy()


class Host:
    """A module of the host. Its methods with `out` run on the host, in a call; the others are traced.

    The module is a copy of the user's. In a call its parameters are views of the flat vector, which is only read.
    """

    def __init__(self, module: torch.nn.Module, name: str):
        self.module, self.name = copy.deepcopy(module), name
        self.parameters = trainable(self.module)
        self.values = [p.data for p in self.parameters]  # the module's own, between calls
        self.sizes = [p.numel() for p in self.parameters]
        offsets = itertools.accumulate(self.sizes[:-1], initial=0)
        self.views = [
            (v.shape, v.contiguous().stride(), offset) for v, offset in zip(self.values, offsets, strict=True)
        ]
        self.dtype = FLOATS[self.parameters[0].dtype]
        self.shapes: dict[Any, tuple[int, ...]] = {}  # of the outputs for one row, by the shapes of the inputs
        self._apply = derivative_in_first(self._value, lambda *args: (self._value(*args), args), self._back)

    @property
    def size(self) -> int:
        """The number of trainable parameters."""
        return sum(self.sizes)

    def apply(self, w: Vector, x: Tree, key: Key | None) -> jax.Array:
        """The outputs, with a derivative in w: going back computes them once more."""
        return self._apply(w, floats_as(self.dtype, x), bits(key))

    def _value(self, w: Vector, x: Tree, bits: jax.Array | None) -> jax.Array:
        shape = self.output_shape(x)
        return call(self.outputs, jax.ShapeDtypeStruct(shape, self.dtype), w, x, bits)

    def _back(self, saved: Any, cotangent: jax.Array) -> Vector:
        return call(self.pulled_back, like(saved[0]), cotangent, *saved)

    def outputs(self, out: np.ndarray, w: np.ndarray, x: Tree, bits: np.ndarray | None) -> None:
        with self.at(w, bits), torch.no_grad():
            out[...] = self.module(*inputs(tensors(x))).numpy()

    def pulled_back(self, out: np.ndarray, cotangent: np.ndarray, *given: Any) -> None:
        w, x, bits = given
        with self.at(w, bits), torch.enable_grad():
            self.gradient(out, torch.sum(self.module(*inputs(tensors(x))) * tensor(cotangent)))

    def gradient(self, out: np.ndarray, value: torch.Tensor) -> None:
        """The derivative of a number in all parameters, as one vector."""
        parts = torch.autograd.grad(value, self.parameters, allow_unused=True, materialize_grads=True)
        torch.cat([part.reshape(-1) for part in parts], out=torch.from_numpy(out))

    @contextlib.contextmanager
    def at(self, w: np.ndarray, bits: np.ndarray | None) -> Iterator[None]:
        """The module with the parameters w; in training, with randomness that follows from the key, if there is one."""
        with turn, seeded(bits):
            self.set_mode(bits is not None)
            try:
                self.set_values(torch.from_numpy(w))
                yield
            finally:
                self.reset_values()

    def set_values(self, w: torch.Tensor) -> None:
        """The parameters become views of a vector."""
        for p, (shape, strides, offset) in zip(self.parameters, self.views, strict=True):
            p.data = w.as_strided(shape, strides, offset)  # the cheapest view

    def reset_values(self) -> None:
        for p, own in zip(self.parameters, self.values, strict=True):
            p.data = own

    def set_mode(self, training: bool) -> None:
        if self.module.training is not training:  # it goes through all layers
            self.module.train(training)

    def output_shape(self, x: Tree) -> tuple[int, ...]:
        """The shape of the outputs for inputs of these shapes, found with one row of zeros."""
        leaves, structure = jax.tree.flatten(x)
        kinds = (structure, *((leaf.shape[1:], leaf.dtype) for leaf in leaves))
        if kinds not in self.shapes:
            row = jax.tree.unflatten(structure, [np.zeros((1, *leaf.shape[1:]), leaf.dtype) for leaf in leaves])
            with turn, torch.no_grad():
                self.set_mode(False)
                self.shapes[kinds] = checked_outputs(self.module, self.name, tensors(row), 1).shape[1:]
        return leaves[0].shape[0], *self.shapes[kinds]

    def state_dict(self, w: Vector) -> dict[str, Any]:
        """What `load_state_dict` takes: w by the names of the module, and what is constant."""
        values = np.asarray(w)
        if values.shape != (self.size,):
            raise ValueError(f"{self.name} has {self.size} trainable parameters, got an array of shape {values.shape}.")
        parts = torch.from_numpy(values.astype(self.dtype)).split(self.sizes)
        own = {id(p): part.view(p.shape) for p, part in zip(self.parameters, parts, strict=True)}
        found = self.module.state_dict(keep_vars=True)
        return {
            name: own.get(id(value), value).detach().clone() if isinstance(value, torch.Tensor) else value
            for name, value in found.items()
        }


def checked_outputs(module: torch.nn.Module, name: str, x: Tree, rows: int) -> torch.Tensor:
    """What the module gives for inputs x with so many rows, or a sentence about what is wrong with it."""
    given = ", ".join(f"{leaf.dtype}{list(leaf.shape)}".removeprefix("torch.") for leaf in inputs(x))
    try:
        outputs = module(*inputs(x))
    except Exception as error:
        whole = all(not leaf.is_floating_point() for leaf in inputs(x))
        hint = (
            " Integers stay integers, as an embedding needs them; `prepare` can make floats of them." if whole else ""
        )
        raise ValueError(f"{name} does not take inputs of {given}: {brief(error)}.{hint}") from error
    if not isinstance(outputs, torch.Tensor):
        raise ValueError(
            f"{name} must return one tensor, but returns {type(outputs).__name__}; wrap it in a module whose forward "
            "picks what the loss needs."
        )
    if outputs.ndim == 0 or outputs.shape[0] != rows:
        raise ValueError(
            f"{name} must return one row for each of its inputs, but for {given} it returns shape "
            f"{tuple(outputs.shape)}; note that squeeze() without a dim also drops the axis of a batch of one."
        )
    if outputs.dtype not in FLOATS:
        raise ValueError(f"{name} must return floats, but returns {outputs.dtype}.")
    return outputs


Make = Callable[[], torch.nn.Module]


def make_seeded(make: Make, key_bits: np.ndarray) -> torch.nn.Module:
    """The module that `make` makes from a key."""
    with turn, seeded(key_bits):
        return make()


class Maker:
    """Initial parameters from a key: the module is made anew."""

    def __init__(self, make: Make, like: Host):
        self.make, self.like = make, like

    def __call__(self, key: Key) -> Vector:
        return call(self.fill, jax.ShapeDtypeStruct((self.like.size,), self.like.dtype), bits(key))

    def fill(self, out: np.ndarray, key_bits: np.ndarray) -> None:
        out[...] = flat(trainable(make_seeded(self.make, key_bits)))


class Given:
    """The same initial parameters for every key: those that the module had."""

    def __init__(self, host: Host):
        self.w = flat(host.parameters)

    def __call__(self, key: Key) -> Vector:
        return jnp.asarray(self.w)
