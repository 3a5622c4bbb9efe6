"""Modules of Flax (linen and NNX) and Equinox as models. The libraries are imported only when needed."""

import importlib
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp

from fedloom.models.model import Model
from fedloom.problem import Key


def library(name: str) -> Any:
    """A library that comes with an extra of its own name."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = name.split(".")[0]
        raise ImportError(f"{package} is not installed; run: pip install 'fedloom[{package}]'") from error


BRINGERS = {  # from a module's library to what makes a model of it
    "torch": "from_torch(module, x)",
    "flax.linen": "from_linen(module, x)",
    "flax.nnx": "from_nnx(lambda rngs: ...)",
    "equinox": "from_equinox(lambda key: ...)",
}


def how_to_bring(value: Any) -> str:
    """The end of an error message: how a module of another library becomes a model. Imports nothing."""
    origins = [kind.__module__ for kind in type(value).__mro__]
    found = [how for library, how in BRINGERS.items() if any(f"{o}.".startswith(f"{library}.") for o in origins)]
    return f"; use models.{found[0]}" if found else ""


def _refuse_others(function: str, value: Any) -> None:
    """Refuse a module of another library than that of the function."""
    how = how_to_bring(value)
    if how and f"models.{function}(" not in how:
        raise ValueError(f"{function} does not take a {type(value).__name__}{how}.")


def _refuse_state(name: str, kinds: Iterable[str]) -> None:
    """Refuse what is neither a parameter nor randomness: a method would not know how to average it."""
    if kinds := sorted(kinds):
        raise ValueError(
            f"{name} keeps state besides its parameters ({', '.join(kinds)}), which federated methods do not average; "
            "replace BatchNorm by GroupNorm or LayerNorm."
        )


def _refuse_integers(name: str, params: Any) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            where = jax.tree_util.keystr(path)
            raise ValueError(f"{name}: the parameter {where} has type {leaf.dtype}, but parameters must be floats.")


def from_linen(
    module: Any, x: Any, train: dict[str, Any] | None = None, evaluate: dict[str, Any] | None = None
) -> Model:
    """A Flax linen module, with a batch x as an example of its inputs.

    Args:
        module: for example MyModule(classes=10).
        x: an array of the shape and type of a batch; its values do not matter.
        train: keyword arguments of the module's call in training, for example {"deterministic": False}.
        evaluate: the same outside training, for example {"deterministic": True}.
    """
    _refuse_others("from_linen", module)
    name, train, evaluate = type(module).__name__, train or {}, evaluate or {}
    like = jnp.zeros(jnp.shape(x), jnp.asarray(x).dtype)

    def variables(key: Key) -> Any:
        return module.init(key, like, **evaluate)

    def apply(params: Any, x: Any, key: Key | None) -> jax.Array:
        if key is None:
            return module.apply({"params": params}, x, **evaluate)
        return module.apply({"params": params}, x, rngs=key, **train)  # one key serves every stream that is asked for

    shapes = jax.eval_shape(variables, jax.random.key(0))
    _refuse_state(name, set(shapes) - {"params"})
    _refuse_integers(name, shapes)
    return Model(name, lambda key: variables(key)["params"], apply)


def from_nnx(make: Callable[[Any], Any]) -> Model:
    """A Flax NNX module, made by make(rngs), for example lambda rngs: MyModule(10, rngs=rngs).

    Training and evaluation are the module's train() and eval(), and each training step seeds its random streams anew.
    Arrays that are not variables are constants, with the values that they have for nnx.Rngs(0).
    """
    _refuse_others("from_nnx", make)
    nnx = library("flax.nnx")
    module = make(nnx.Rngs(0))
    graph, parameters, rest = nnx.split(module, nnx.Param, ...)
    structure, (values, others) = jax.tree.structure(parameters), jax.tree.flatten(rest)
    variables = [v for _, v in nnx.to_flat_state(rest) if isinstance(v, nnx.Variable)]
    streams = sorted({v.tag for v in variables if isinstance(v, nnx.RngKey)})
    name = type(module).__name__
    _refuse_state(name, {type(v).__name__ for v in variables if not isinstance(v, nnx.RngState)})
    _refuse_integers(name, nnx.to_pure_dict(parameters))

    def init(key: Key) -> Any:
        return nnx.to_pure_dict(nnx.state(make(nnx.Rngs(key)), nnx.Param))

    def apply(params: Any, x: Any, key: Key | None) -> jax.Array:
        # Variables are mutable and belong to a trace: new ones at every call.
        module = nnx.merge(
            graph, jax.tree.unflatten(structure, jax.tree.leaves(params)), jax.tree.unflatten(others, values)
        )
        if key is None:
            module.eval()
        else:
            module.train()
            nnx.reseed(module, **dict(zip(streams, jax.random.split(key, len(streams)), strict=True)))
        return module(x)

    def own(params: Any) -> Any:
        module = nnx.merge(
            graph, jax.tree.unflatten(structure, jax.tree.leaves(params)), jax.tree.unflatten(others, values)
        )
        module.eval()
        return module

    return Model(name, init, apply, own=own)


def from_equinox(make: Callable[[Key], Any]) -> Model:
    """An Equinox module, made by make(key), for example lambda key: eqx.nn.MLP(784, 10, 200, 2, key=key).

    The module takes one example, as Equinox's do; the model takes batches. Outside training it is in inference mode. In
    training, each example gets its own key if the module's call has an argument `key`. Floating arrays are parameters;
    everything else is constant, with the values that it has for jax.random.key(0).
    """
    _refuse_others("from_equinox", make)
    eqx = library("equinox")
    module = make(jax.random.key(0))
    name = type(module).__name__
    stateful = jax.tree.leaves(module, is_leaf=lambda x: isinstance(x, eqx.nn.StateIndex))
    _refuse_state(name, {type(x).__name__ for x in stateful if isinstance(x, eqx.nn.StateIndex)})
    constants = eqx.partition(module, eqx.is_inexact_array)[1]
    takes_key = "key" in inspect.signature(type(module).__call__).parameters

    def apply(params: Any, x: Any, key: Key | None) -> jax.Array:
        module = eqx.combine(params, constants)
        if key is None:
            given = {"key": None} if takes_key else {}
            return jax.vmap(lambda one: eqx.nn.inference_mode(module)(one, **given))(x)
        if not takes_key:
            return jax.vmap(module)(x)
        return jax.vmap(lambda one, k: module(one, key=k))(x, jax.random.split(key, len(x)))

    def own(params: Any) -> Any:
        return eqx.nn.inference_mode(eqx.combine(params, constants))

    return Model(name, lambda key: eqx.filter(make(key), eqx.is_inexact_array), apply, own=own)
