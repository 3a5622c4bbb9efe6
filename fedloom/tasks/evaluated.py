"""What is evaluated of a model: metrics of the training, validation and test examples, or of a sample of them."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.algorithm import Algorithm
from fedloom.client import Federation
from fedloom.data.empirical_risk import EmpiricalRisk, Examples
from fedloom.hyperparameters import nearest
from fedloom.metrics import evaluation
from fedloom.metrics.scores import Metric
from fedloom.problem import Scalar, Vector

if TYPE_CHECKING:
    from fedloom.tasks.task import Loaded

PARTS = ("train", "validation", "test")
# With more training examples in all, the training loss costs more than the rounds between two evaluations often do; it
# is then evaluated only if it is asked for.
FEW_EXAMPLES = 20_000
MANY_OWNERS = 30  # of test examples: then blocks are of owners
TEST_BLOCKS = "test blocks"  # beside the metrics of a model: `evaluation.blocks` of each of those on the test set


class Evaluation:
    """What is evaluated of the models of a loaded task; each entry of `what` adds some metrics.

        "train", "validation", "test"   all metrics of that part; of the training examples the loss f(w)
        "test accuracy"                 a single metric
        "train:5000"                    the metric "train:5000 loss", an unbiased estimate of f(w) from a fixed sample

    None stands for all metrics of the test and validation examples and, if the clients have at most FEW_EXAMPLES
    training examples in all or if there is no test set, the training loss; and for the metric of the task's target.
    Nothing else is computed.
    """

    def __init__(self, loaded: "Loaded", what: Sequence[str] | None = None, own: Algorithm | None = None):
        self.loaded = loaded
        self.own = own  # the algorithm whose clients' own models are evaluated too
        self.what = usual(loaded) if what is None else tuple(what)
        self.known = known_metrics(loaded)
        self.train = False
        self.samples: dict[int, jax.Array] = {}  # the rows of each sample, by their number
        self.chosen: dict[str, list[str]] = {"validation": [], "test": []}
        for entry in self.what:
            self._choose(entry)
        self.owners = owners_of_tests(loaded)

    def _choose(self, entry: str) -> None:
        if sample := re.fullmatch(r"train:(\d+)( loss)?", entry):
            n = int(sample[1])
            self.samples.setdefault(n, jnp.asarray(sample_rows(self.loaded, n)))
            return
        part = entry.partition(" ")[0]
        names = [name for name in self.known if entry in (part, name) and name.startswith(part + " ")]
        if part in PARTS and not any(name.startswith(part + " ") for name in self.known):
            hint = "; hold some out with validation = 0.1" if part == "validation" else ""
            raise ValueError(f"evaluate: task {self.loaded.task.name!r} has no {part} examples{hint}.")
        if not names:
            raise ValueError(f"evaluate: there is no metric {entry!r}.{nearest(entry, self.known)}")
        if part == "train":
            self.train = True
        else:
            self.chosen[part] = list(dict.fromkeys([*self.chosen[part], *(n.removeprefix(part + " ") for n in names)]))

    @property
    def metrics(self) -> dict[str, Metric]:
        """The metrics that are evaluated, by their names in a log."""
        names = ["train loss"] if self.train else []
        found = {name: self.known[name] for name in names}
        found |= {f"train:{n} loss": self.known["train loss"] for n in self.samples}
        for part, chosen in self.chosen.items():
            found |= {f"{part} {name}": self.known[f"{part} {name}"] for name in chosen}
        if self.own is not None:
            found["own train loss"] = self.known["train loss"]
            if self.loaded.data is not None and self.loaded.data.test_split is not None:
                found |= {f"own test {name}": metric for name, metric in self.loaded.metrics.items()}
        return found

    def of(self, w: Vector, clients: Mapping[int, Any] | None = None) -> dict[str, Any]:
        """The metrics of a model, and TEST_BLOCKS. `clients` have the memories of the clients that have any."""
        found = self.loaded
        values: dict[str, Any] = {"train loss": float(found.federation.loss(w))} if self.train else {}
        for n, rows in self.samples.items():
            values[f"train:{n} loss"] = float(_sample_loss(found.federation, rows, w))
        pairs = {part: found.examplewise(w, part, names) for part, names in self.chosen.items() if names}
        values |= _totals(pairs)
        if self.own is not None:
            values |= found.evaluate_own(self.own, clients or {})
        return values | _blocks(pairs, self.owners)

    def of_all(self, models: jax.Array) -> list[dict[str, Any]]:
        """`of` for several small models [models, d] at once; the same up to rounding."""
        found = self.loaded
        columns = {"train loss": _losses(found.federation, models)} if self.train else {}
        for n, rows in self.samples.items():
            columns[f"train:{n} loss"] = _sample_losses(found.federation, rows, models)
        scores = {part: found.examplewise_all(models, part, names) for part, names in self.chosen.items() if names}
        values = []
        for i in range(len(models)):
            pairs = {part: of_models[i] for part, of_models in scores.items()}
            values.append(
                {name: float(x[i]) for name, x in columns.items()} | _totals(pairs) | _blocks(pairs, self.owners)
            )
        return values


def _totals(pairs: Mapping[str, evaluation.HostPairs]) -> dict[str, Any]:
    return {f"{part} {name}": value for part, of in pairs.items() for name, value in evaluation.total(of).items()}


def _blocks(pairs: Mapping[str, evaluation.HostPairs], owners: np.ndarray | None) -> dict[str, Any]:
    found = {f"test {name}": evaluation.blocks(a, b, owners) for name, (a, b) in pairs.get("test", {}).items()}
    return {TEST_BLOCKS: found} if found else {}


def owners_of_tests(loaded: "Loaded") -> np.ndarray | None:
    """Who owns each test example, as numbers from 0; those without an owner are alone.

    None if the clients are not natural ones, such as writers, or too few to be a sample of their kind.
    """
    split = None if loaded.data is None else loaded.data.test_split
    if loaded.data is None or split is None or split.names is None or np.sum(split.sizes > 0) < MANY_OWNERS:
        return None
    n = len(loaded.data.test[1])
    found = split.clients + np.arange(n)
    found[split.order] = split.owner()
    return np.unique(found, return_inverse=True)[1]


def known_metrics(loaded: "Loaded") -> dict[str, Metric]:
    """All metrics that can be evaluated, by their names in a log."""
    data = loaded.data
    if data is None:
        return {"train loss": Metric("loss", lambda w, _: (w, w), larger_is_better=False)}  # any function of w
    found = {"train loss": loaded.metrics["loss"]}
    for part, there in (("validation", data.validation_split), ("test", data.test)):
        if there is not None:
            found |= {f"{part} {name}": metric for name, metric in loaded.metrics.items()}
    return found


def usual(loaded: "Loaded") -> tuple[str, ...]:
    """What is evaluated if nothing is asked for."""
    data, target = loaded.data, loaded.task.target
    cheap = data is None or data.test is None or data.split.sizes.sum() <= FEW_EXAMPLES
    found = ["train"] if cheap else []
    if data is not None:
        found += [
            part for part, there in (("validation", data.validation_split), ("test", data.test)) if there is not None
        ]
    if target is not None and target[0].partition(" ")[0] not in found and target[0] in known_metrics(loaded):
        found.append(target[0])
    return tuple(found)


def sample_rows(loaded: "Loaded", n: int, seed: int = 0) -> np.ndarray:
    """n rows of the training store, example i of client k being expected n p_k / n_k times: their mean loss is f(w).

    That is systematic sampling from the examples in random order. With weights by examples no row is drawn twice.
    """
    f = loaded.federation
    if not isinstance(f, Examples):
        raise ValueError(f"evaluate: task {loaded.task.name!r} is a function of w: it has no examples to sample.")
    sizes = np.asarray(f.sizes)
    if not 1 <= n <= sizes.sum():
        raise ValueError(
            f"evaluate: train:{n} must name a number from 1 to {sizes.sum()}, the number of training examples."
        )
    rng = np.random.default_rng(seed)
    order = rng.permutation(sizes.sum())
    ends = np.cumsum(np.repeat(np.asarray(f.weights, float) / sizes, sizes)[order])
    points = (rng.random() + np.arange(n)) * ends[-1] / n
    positions = np.sort(order[np.minimum(np.searchsorted(ends, points, side="right"), len(order) - 1)])
    return positions if f.order is None else np.asarray(f.order)[positions]


@jax.jit
def _sample_loss(federation: Examples, rows: jax.Array, w: Vector) -> Scalar:
    n = rows.shape[0]
    return EmpiricalRisk(federation.store, rows, 0, n, n, federation.loss_of, federation.unravel).loss(w)


@jax.jit
def _sample_losses(federation: Examples, rows: jax.Array, models: jax.Array) -> jax.Array:
    return jax.vmap(lambda w: _sample_loss(federation, rows, w))(models)


@jax.jit
def _losses(federation: Federation, models: jax.Array) -> jax.Array:
    return jax.vmap(federation.loss)(models)
