"""What a model is: `init(key) -> params` and `apply(params, x, key) -> outputs`."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec

import jax
from jax.flatten_util import ravel_pytree

from fedloom.problem import Key, Vector

P = ParamSpec("P")

Apply = Callable[[Any, Any, Key | None], jax.Array]  # (params, a batch of inputs, key) -> outputs


def _as_they_are(params: Any) -> Any:
    """The parameters as their library has them, for example a state_dict of PyTorch."""
    return params


@dataclasses.dataclass(frozen=True)
class Model:
    """A model as a pair of pure functions. `key` is None outside training: then nothing is dropped out."""

    name: str
    init: Callable[[Key], Any]
    apply: Apply
    # For a model outside JAX: from a criterion to summed(params, x, y, weights, key), the sum of weight times loss,
    # with its gradient in the same call. See `fedloom.loss.Summed`.
    summed: Callable[[Any], Callable[..., jax.Array]] | None = None
    own: Callable[[Any], Any] = _as_they_are  # parameters as their library has them, e.g. a state_dict
    packages: tuple[str, ...] = ()  # whose versions can change the bits of a result
    how: str = ""  # how it is computed, if not by JAX alone: a word or two for a run's `about`

    def flat(self, seed: int = 0) -> Vector:
        """Initial parameters as one flat vector."""
        # Not in one program, which would round differently from what recorded runs began with.
        return ravel_pytree(self.init(jax.random.key(seed)))[0]

    @property
    def unravel(self) -> Callable[[Vector], Any]:
        """From the flat vector to the parameters; the same function for the same model, so that programs are shared."""
        return _unravel(self)

    @property
    def parameters(self) -> int:
        """The number of trainable parameters."""
        return sum(x.size for x in jax.tree.leaves(jax.eval_shape(self.init, jax.random.key(0))))


@functools.cache
def _unravel(model: Model) -> Callable[[Vector], Any]:
    found: list[Callable[[Vector], Any]] = []
    # Only the shapes matter, so nothing is computed.
    jax.eval_shape(lambda key: found.append(ravel_pytree(model.init(key))[1]), jax.random.key(0))
    return found[0]


def shared(make: Callable[P, Model]) -> Callable[P, Model]:
    """Decorates a maker: equal arguments, however passed, give the same Model, so that compiled programs are shared."""
    signature, cached = inspect.signature(make), functools.cache(make)

    @functools.wraps(make)
    def maker(*args: P.args, **kwargs: P.kwargs) -> Model:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        return cached(*given.args, **given.kwargs)

    return maker
