"""Losses of PyTorch as criteria, and which of our own PyTorch computes by itself."""

from collections.abc import Callable
from typing import Any

from fedloom.metrics.scores import Criterion, binary_cross_entropy, cross_entropy, squared_error
from fedloom.pytorch import check_installed


def from_torch(loss: Callable[[Any, Any], Any]) -> Criterion:
    """A loss of PyTorch as the criterion of a task, for example torch.nn.CrossEntropyLoss(reduction="none").

    It takes outputs and labels and returns one number for each row. Floating labels have the type of the outputs,
    integers are int64. A loss that couples rows and returns one number is given as fl.Coupled(from_torch(loss)); it
    gets the rows that belong to a batch, and no others. Models in JAX may be trained with it, too.
    """
    check_installed()
    from fedloom.pytorch.losses import TorchLoss

    return TorchLoss(loss)


def in_torch(criterion: Any) -> Callable[[Any, Any], Any] | None:
    """The criterion as a function of tensors, if it is one of PyTorch's or has an equal there."""
    from fedloom.pytorch import losses

    if isinstance(criterion, losses.TorchLoss):
        return criterion.f
    same = {
        cross_entropy: losses.cross_entropy,
        binary_cross_entropy: losses.binary_cross_entropy,
        squared_error: losses.squared_error,
    }
    return same.get(criterion)
