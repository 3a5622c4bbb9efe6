"""What a loss may look like, from one number for each row to one number for all rows together.

Most losses are functions loss(params, rows, key) that give one number for each row, and nothing else is needed. Where
the number of a row depends on other rows, as in Cox's partial likelihood or a contrastive loss, the loss is `Coupled`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from fedloom.problem import Key

RowLoss = Callable[[Any, Any, Key | None], jax.Array]  # (params, rows, key) -> the loss of each row


@dataclasses.dataclass(frozen=True)
class Outside:
    """What a loss that is computed outside JAX consists of, for a solver that takes its steps there too.

    Args:
        prepare: from stored rows and a key to inputs, targets, and the key of the model.
        total: total(params, x, y, weights, key), with its derivative, as the model's library made it.
    """

    prepare: Callable[[Any, Key | None], tuple[Any, Any, Key | None]]
    total: Any


@dataclasses.dataclass(frozen=True)
class Coupled:
    """A loss that couples the rows of a batch: it gives one number for all of them.

    The rows are always those of one client: F_k is the loss of all of its rows, and a minibatch step follows the
    gradient of the batch's own loss. A batch may be filled up with rows that do not belong to it, so that the function
    gets a mask and must leave out the rows where it is False.

    Args:
        of: of(params, rows, mask, key) for `examples`; of(outputs, y, mask) as the criterion of a task.
        outside: given by a task whose model is computed outside JAX.
    """

    of: Callable[..., jax.Array]
    outside: Outside | None = None


@dataclasses.dataclass(frozen=True)
class Summed:
    """A loss that is computed outside JAX, with its gradient in the same call.

    Args:
        of: of(params, rows, weights, key) gives the sum of weight times loss over the rows whose weight is not 0; it
            brings its own derivative.
        each: the same loss for each row.
        outside: what it consists of.
    """

    of: Callable[[Any, Any, jax.Array, Key | None], jax.Array]
    each: RowLoss
    outside: Outside | None = None


Loss = RowLoss | Coupled | Summed
