"""Models of tables: by a short name, of the size that the table needs."""

import re
from collections.abc import Callable

import jax
import numpy as np

from fedloom.models import Model, logistic, mlp
from fedloom.tables.preparation import Preparation

TableModel = str | Model | Callable[[int, int], Model]


def table_model(model: TableModel, features: int, outputs: int) -> Model:
    """A model of a table: "linear", "mlp" (a hidden layer of 64), "mlp-128-64" (hidden layers of these sizes)."""
    if isinstance(model, Model):
        return model
    if callable(model):
        made = model(features, outputs)
        if not isinstance(made, Model):
            raise ValueError(f"model: the function must return a Model, got {made!r:.80}.")
        return made
    if model == "linear":
        return logistic(features, outputs)
    if isinstance(model, str) and re.fullmatch(r"mlp(-[1-9]\d{0,5})*", model):
        hidden = [int(size) for size in model.split("-")[1:]] or [64]
        return mlp(features, *hidden, outputs)
    raise ValueError(
        f"model: there is no model {model!r} of tables; give linear, mlp, mlp-128-64 (sizes of hidden layers), a "
        "Model, or a function (features, outputs) -> Model."
    )


def check_model(model: Model, preparation: Preparation) -> None:
    """Raise a ValueError unless the model takes the table's features and has an output for each class."""
    features, outputs = len(preparation.names), preparation.label.outputs
    x = jax.ShapeDtypeStruct((2, features), np.float32)
    try:
        found = jax.eval_shape(lambda x: model.apply(model.init(jax.random.key(0)), x, None), x).shape
    except (TypeError, ValueError) as error:
        raise ValueError(f"model: {model.name} does not take the table's {features} features: {error}") from error
    if found != (2, outputs) and not (outputs == 1 and found == (2,)):
        raise ValueError(
            f"model: {model.name} gives outputs of shape {found} for 2 rows, but the label "
            f"{preparation.label.name!r} needs {(2, outputs)}."
        )
