"""Hyperparameters are the fields of frozen dataclasses.

A field states its default, its domain and one line of help, once. The constructor checks the domain, JAX sees the
numbers as pytree leaves (so a grid of them is a vmapped axis, never a recompilation), and command-line flags, tables
and documentation are made from `dataclasses.fields`.
"""

import dataclasses
import difflib
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedloom.hyperparameters.optimizers import OPTIMIZERS

T = TypeVar("T")


class Domain(NamedTuple):
    """The values that a field may have: how an error message continues after "must be", and the test.

    A value that files and flags refer to by name comes from a registry; a choice between words lists them.
    """

    words: str
    holds: Callable[[Any], Any]
    registry: Mapping[str, Callable[..., Any]] = {}
    choices: tuple[str, ...] = ()


def _number(test: Callable[[Any], Any]) -> Callable[[Any], bool]:
    def holds(value: Any) -> bool:
        if isinstance(value, bool | list | tuple):
            return False
        try:
            return bool(np.all(np.isfinite(value) & test(np.asarray(value))))
        except TypeError:
            return False

    return holds


def _positive_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 1)


positive = Domain("a positive number", _number(lambda v: v > 0))
nonnegative = Domain("a non-negative number", _number(lambda v: v >= 0))
finite = Domain("a finite number", _number(lambda v: v == v))
probability = Domain("a number in [0, 1)", _number(lambda v: (v >= 0) & (v < 1)))
count = Domain("a positive integer", _positive_integer)
optax_optimizer = Domain(
    "an optax optimizer such as optax.adam(1e-3)",
    lambda v: isinstance(v, optax.GradientTransformation),
    OPTIMIZERS,
)
flag = Domain("True or False", lambda v: isinstance(v, bool))


def interval(low: float, high: float, ends: str = "()") -> Domain:
    """Numbers between low and high; `ends` says which of the two are included, as in "(]"."""
    above = np.greater if ends[0] == "(" else np.greater_equal
    below = np.less if ends[1] == ")" else np.less_equal
    words = f"a number in {ends[0]}{low:g}, {high:g}{ends[1]}"
    return Domain(words, _number(lambda v: above(v, low) & below(v, high)))


def choice(*names: str) -> Domain:
    """One of the given names."""
    words = "one of " + ", ".join(repr(n) for n in names)
    return Domain(words, lambda v: isinstance(v, str) and v in names, choices=names)


def optional(domain: Domain) -> Domain:
    """The same domain, or None."""
    return domain._replace(words=domain.words + ", or None", holds=lambda v: v is None or domain.holds(v))


def hyper(domain: Domain, doc: str, *, default: Any, per_client: bool = False) -> Any:
    """A numeric hyperparameter: a pytree leaf. With `per_client`, an array gives every client its own value."""
    metadata = {"domain": domain, "doc": doc, "per_client": per_client}
    return dataclasses.field(default=default, metadata=metadata)


def static(domain: Domain, doc: str, *, default: Any = dataclasses.MISSING, kw_only: bool = False) -> Any:
    """A hyperparameter that shapes the program (a choice, a count, a function): compiled in."""
    metadata = {"domain": domain, "doc": doc, "static": True}
    return dataclasses.field(default=default, metadata=metadata, kw_only=kw_only)


def check_fields(self: Any) -> None:
    """Raise a ValueError for the first field whose value lies outside its domain."""
    for field in dataclasses.fields(self):
        domain, value = field.metadata.get("domain"), getattr(self, field.name)
        if isinstance(value, np.floating | np.integer):  # NumPy's numbers impose their type, Python's adopt the model's
            number = float(value) if isinstance(value, np.floating) else int(value)
            object.__setattr__(self, field.name, value := number)
        if domain and not isinstance(value, jax.core.Tracer) and not domain.holds(value):
            array = ", or an array with one entry for each client" if field.metadata.get("per_client") else ""
            raise ValueError(f"{type(self).__name__}: {field.name} must be {domain.words}{array}, got {value!r}.")


@dataclass_transform(frozen_default=True, field_specifiers=(hyper, static, dataclasses.field))
def frozen(cls: type[T]) -> type[T]:
    """Make `cls` a frozen dataclass that checks its domains and is a JAX pytree."""
    if "__doc__" not in vars(cls) or cls.__doc__ is None:
        cls.__doc__ = sys.modules[cls.__module__].__doc__  # an algorithm's paper, pseudo-code and departures
    if not hasattr(cls, "__post_init__"):
        cls.__post_init__ = check_fields  # type: ignore[attr-defined]
    cls = dataclasses.dataclass(frozen=True)(cls)
    if cls.__reduce__ in (object.__reduce__, _reduced):
        cls.__reduce__ = _reduced  # type: ignore[method-assign]
    _register(cls)
    return cls


def _reduced(self: Any) -> tuple[Any, ...]:
    """How a value is pickled: a class of a script or a notebook arrives in another process without its decorator."""
    return _unpickled, (type(self), dict(vars(self)))


def _unpickled(cls: type, values: dict[str, Any]) -> Any:
    if cls not in _registered:
        _register(cls)
    made: Any = object.__new__(cls)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


_registered: "weakref.WeakSet[type]" = weakref.WeakSet()


def _register(cls: type) -> None:
    """Register a dataclass as a pytree, its class being part of the structure.

    Not jax.tree_util.register_dataclass: the structures that it makes of two classes with equal fields compare equal
    (JAX 0.10), so that jit may run the program compiled for FedSGD when it is given FedAvg.
    """
    fields = dataclasses.fields(cls)
    leaves = tuple(f.name for f in fields if not f.metadata.get("static"))
    compiled_in = tuple(f.name for f in fields if f.metadata.get("static"))

    def flatten(value: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(value, n) for n in leaves), (cls, *(getattr(value, n) for n in compiled_in))

    def flatten_with_keys(value: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        children, structure = flatten(value)
        keys = (jax.tree_util.GetAttrKey(n) for n in leaves)
        return tuple(zip(keys, children, strict=True)), structure

    def unflatten(structure: tuple[Any, ...], children: Iterable[Any]) -> Any:
        value: Any = object.__new__(cls)  # bypasses the checks: JAX also puts placeholders into trees
        for name, child in zip(leaves + compiled_in, (*children, *structure[1:]), strict=True):
            object.__setattr__(value, name, child)
        return value

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    _registered.add(cls)


def per_client_fields(value: Any) -> dict[str, Any]:
    """The fields of `value`, and with a dot those of its parts, that hold an array with one entry for each client."""
    found: dict[str, Any] = {}
    for f in dataclasses.fields(value):
        own = getattr(value, f.name)
        if dataclasses.is_dataclass(own):
            found |= {f"{f.name}.{name}": array for name, array in per_client_fields(own).items()}
        elif f.metadata.get("per_client") and np.ndim(own) == 1:
            found[f.name] = own
    return found


def misplaced_arrays(value: Any) -> dict[str, tuple[int, ...]]:
    """The fields of `value` that hold an array where a single number is needed, with their shapes."""
    numbers = {
        f.name: np.shape(getattr(value, f.name))
        for f in dataclasses.fields(value)
        if isinstance(getattr(value, f.name), np.ndarray | jax.Array) and f.name not in per_client_fields(value)
    }
    return {name: shape for name, shape in numbers.items() if shape}


def for_client(value: T, k: Any) -> T:
    """`value` as client k sees it: each per-client array is replaced by its entry k, which may be traced."""
    own: dict[str, Any] = {}
    for name, array in per_client_fields(value).items():
        part, dot, _ = name.partition(".")
        own[part] = for_client(getattr(value, part), k) if dot else jnp.asarray(array)[k]
    return dataclasses.replace(value, **own) if own else value  # type: ignore[type-var]


def nearest(name: str, names: Iterable[str]) -> str:
    """The end of an error message: what the user may have meant."""
    names = sorted(names)
    if not names:
        return " There are none."
    close = difflib.get_close_matches(name.lower(), [n.lower() for n in names], n=1, cutoff=0.5)
    meant = "".join(f" Did you mean {n!r}?" for n in names if n.lower() in close)
    word = "Known"
    if len(names) > 20:  # too many to read: list the most similar ones
        names, word = difflib.get_close_matches(name.lower(), names, n=8, cutoff=0.0), "Similar"
    return f"{meant} {word}: {', '.join(repr(n) if ',' in n else n for n in names)}."


def brief(value: Any) -> str:
    """A short form of a value: its class, its numbers, and those of its other fields that differ from the default."""
    if not dataclasses.is_dataclass(value):
        return f"{value:.4g}" if isinstance(value, float) else repr(value)
    given = [
        f"{f.name}={brief(getattr(value, f.name))}"
        for f in dataclasses.fields(value)
        if _is_number(getattr(value, f.name)) or getattr(value, f.name) is not f.default
    ]
    return f"{type(value).__name__}({', '.join(given)})"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def make_from(registry: dict[str, type[T]], kind: str, name: str, given: dict[str, Any]) -> T:
    """registry[name](**given); the error for an unknown name or hyperparameter suggests the nearest one."""
    if name not in registry:
        raise ValueError(f"There is no {kind} {name!r}.{nearest(name, registry)}")
    known = [f.name for f in dataclasses.fields(registry[name])]  # type: ignore[arg-type]
    for field in given:
        if field not in known:
            raise ValueError(f"{name} has no hyperparameter {field!r}.{nearest(field, known)}")
    return registry[name](**given)
