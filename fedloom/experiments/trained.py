"""A trained model: its parameters, what it predicts, and the file that takes it elsewhere."""

import dataclasses
import functools
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedloom import tables
from fedloom.data.inputs import Prepare
from fedloom.experiments import model_file
from fedloom.models import Model, named
from fedloom.tasks import TASKS, Loaded
from fedloom.tasks.task import Task

ROWS = 256  # at once


@dataclasses.dataclass(frozen=True, eq=False)
class Trained:
    """A model with its parameters, and what turns new data into its inputs.

    `Result.model` has that of a run, and `load_model` reads one from a file.
    """

    model: Model
    w: np.ndarray
    prepare: Prepare
    y: jax.ShapeDtypeStruct  # a label, of which `prepare` expects one for each input
    classes: int | None = None  # None: the outputs are what is predicted
    preparation: tables.Preparation | None = None  # of a table: from its rows to inputs, from outputs to predictions
    about: dict[str, Any] = dataclasses.field(default_factory=dict)  # the task, the method, the seed, the round

    @property
    def params(self) -> Any:
        """The parameters as their library has them: a tree of arrays, an Equinox or NNX module, a state_dict."""
        return self.model.own(self.model.unravel(jnp.asarray(self.w)))

    def outputs(self, x: Any) -> np.ndarray:
        """What the model gives for new inputs, which are as the task stores them, or rows of a table."""
        if self.preparation is not None:
            x = self.preparation.features(x)
        x = jax.tree.map(np.asarray, x)
        n = len(jax.tree.leaves(x)[0])
        if n == 0:
            raise ValueError("predict: there is no row to predict.")
        parts = []
        for start in range(0, n, ROWS):  # each filled up to the same size, so that there is one program
            rows = np.minimum(np.arange(start, start + min(n, ROWS)), n - 1)
            inputs = jax.tree.map(lambda a, rows=rows: jnp.asarray(a[rows]), x)
            y = jnp.zeros((len(rows), *self.y.shape), self.y.dtype)
            try:
                found = _outputs(self.model, self.prepare, jnp.asarray(self.w), (inputs, y))
            except (TypeError, ValueError) as error:
                shape = jax.tree.map(np.shape, x)
                raise ValueError(f"predict: the model does not take inputs of shape {shape}: {error}") from error
            parts.append(np.asarray(found)[: n - start])
        return np.concatenate(parts)

    def probabilities(self, x: Any) -> np.ndarray:
        """The probability of each class, [rows, classes]; of one output, the logit of class 1, that of class 1."""
        if self.classes is None:
            raise ValueError("probabilities: this model predicts numbers, not classes; use predict.")
        outputs = jnp.asarray(self.outputs(x))
        one = outputs.ndim == 1 or outputs.shape[-1] == 1
        return np.asarray(jax.nn.sigmoid(outputs.reshape(len(outputs))) if one else jax.nn.softmax(outputs, axis=-1))

    def predict(self, x: Any) -> np.ndarray:
        """The predicted labels or values: for a table in the label's own words and units, else class numbers."""
        return self.columns(x)["prediction"]

    def columns(self, x: Any) -> dict[str, np.ndarray]:
        """All that can be said of each row: "prediction" and, for classes, the probability of each."""
        outputs = self.outputs(x)
        if self.preparation is not None:
            return self.preparation.predictions(outputs)
        if self.classes is None:
            return {"prediction": outputs[..., 0] if outputs.ndim > 1 and outputs.shape[-1] == 1 else outputs}
        if outputs.ndim == 1 or outputs.shape[-1] == 1:
            return {"prediction": (outputs.reshape(len(outputs)) > 0).astype(int)}
        return {"prediction": outputs.argmax(axis=-1)}

    def arrays(self) -> dict[str, np.ndarray]:
        """The parameters by name, for example "0.w"; those of a PyTorch module by the names of its state_dict."""
        tree = self.params if "torch" in self.model.packages else self.model.unravel(jnp.asarray(self.w))
        leaves = jax.tree_util.tree_leaves_with_path(tree)
        return {
            jax.tree_util.keystr(path, simple=True, separator=".") or "w": np.asarray(leaf) for path, leaf in leaves
        }

    def save(self, path: str | pathlib.Path) -> pathlib.Path:
        """Write the model to a new file, whose ending decides the format: .safetensors, .npz, or .pt for PyTorch."""
        facts = {**self.about, "model": self.model.name, "classes": self.classes}
        facts |= {"y": [list(self.y.shape), str(self.y.dtype)]}
        if self.preparation is not None:
            facts["preparation"] = self.preparation.to_plain()
        return model_file.write(pathlib.Path(path), self.arrays(), facts)


def load_model(path: str | pathlib.Path) -> Trained:
    """The model of a file that `save` or `fedloom export` wrote, if FedLoom has the model's architecture."""
    arrays, facts = model_file.read(pathlib.Path(path))
    try:
        model = named(facts["model"])
    except ValueError as error:
        raise ValueError(
            f"{path}: {error} Read its arrays with safetensors or NumPy, or predict with the run's directory."
        ) from error
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    places, structure = jax.tree_util.tree_flatten_with_path(shapes)
    names = [jax.tree_util.keystr(place, simple=True, separator=".") or "w" for place, _ in places]
    if set(names) != set(arrays) or any(arrays[n].shape != s.shape for n, (_, s) in zip(names, places, strict=True)):
        raise ValueError(f"{path} is damaged: its arrays are not those of {facts['model']}.")
    leaves = jax.tree.unflatten(structure, [arrays[name] for name in names])
    w = np.asarray(jax.flatten_util.ravel_pytree(leaves)[0])
    task, preparation = TASKS.get(facts.get("task", "")), facts.get("preparation")
    prepare = task.prepare if task is not None else Task.prepare
    shape, dtype = facts["y"]
    return Trained(
        model,
        w,
        prepare,
        jax.ShapeDtypeStruct(tuple(shape), dtype),
        facts["classes"],
        None if preparation is None else tables.Preparation.from_plain(preparation),
        {key: value for key, value in facts.items() if key not in ("model", "classes", "y", "preparation")},
    )


def trained(loaded: Loaded, w: Any, about: dict[str, Any]) -> Trained:
    """A model of a loaded task."""
    data, model = loaded.data, loaded.task.model
    if data is None or model is None:
        raise ValueError(f"Task {loaded.task.name!r} is a function of w: its result is w itself, and predicts nothing.")
    y = data.train[1]
    like = jax.ShapeDtypeStruct(y.shape[1:], y.dtype)
    facts = {"task": loaded.task.name, **about}
    return Trained(model, np.asarray(w), loaded.task.prepare, like, data.classes, data.preparation, facts)


@functools.partial(jax.jit, static_argnames=("model", "prepare"))
def _outputs(model: Model, prepare: Prepare, w: jax.Array, rows: Any) -> jax.Array:
    return model.apply(model.unravel(w), prepare(rows, None)[0], None)
