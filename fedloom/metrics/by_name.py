"""Losses and metrics that experiments can name."""

from fedloom.metrics.scores import (
    Criterion,
    Metric,
    accuracy,
    auc,
    binary_accuracy,
    binary_cross_entropy,
    cross_entropy,
    mse,
    squared_error,
)

LOSSES: dict[str, Criterion] = {f.__name__: f for f in (cross_entropy, binary_cross_entropy, squared_error)}
METRICS: dict[str, Metric] = {"accuracy": accuracy, "binary_accuracy": binary_accuracy, "mse": mse, "auc": auc}
