"""Optax optimizers by name: values that can be written to a file, read back and compared."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import optax


class Optimizer(optax.GradientTransformation):  # type: ignore[misc]
    """An optax optimizer that knows how it was made. Make one with `optimizer`."""

    name: str
    settings: dict[str, Any]

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.settings.items())})"


def optimizer(name: str, **settings: Any) -> Optimizer:
    """optax.<name>(**settings), for example optimizer("adam", learning_rate=1e-3)."""
    return _made(name, tuple(sorted(settings.items())))


@functools.cache  # the same value for the same settings, so that compiled programs are shared
def _made(name: str, settings: tuple[tuple[str, Any], ...]) -> Optimizer:
    made = getattr(optax, name)(**dict(settings))
    value = Optimizer(made.init, made.update)
    value.name, value.settings = name, dict(settings)
    return value


class _Optimizers(Mapping[str, Callable[..., Optimizer]]):
    """Every function of optax that makes an optimizer from a learning rate."""

    @functools.cached_property
    def _names(self) -> list[str]:
        functions = {n: f for n, f in vars(optax).items() if inspect.isfunction(f) and not n.startswith("_")}
        makers = {n for n, f in functions.items() if "learning_rate" in inspect.signature(f).parameters}
        return sorted(n for n in makers if not n.startswith("scale_by") and n != "lbfgs")  # lbfgs also needs the loss

    def __getitem__(self, name: str) -> Callable[..., Optimizer]:
        if name not in self._names:
            raise KeyError(name)
        return functools.partial(optimizer, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


OPTIMIZERS = _Optimizers()
