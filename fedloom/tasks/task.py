"""A task: data and their split, a model, a loss, metrics, and what papers ran on it."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from fedloom.algorithm import Algorithm
from fedloom.client import Federation, Solver
from fedloom.cohorts import CohortRule
from fedloom.data.empirical_risk import Examples
from fedloom.data.federated_data import FederatedData
from fedloom.data.inputs import Prepare, plain
from fedloom.data.quadratic import Quadratics
from fedloom.data.split import Split
from fedloom.hyperparameters import nearest
from fedloom.loss import Coupled, Loss, Outside, Summed
from fedloom.metrics import evaluation
from fedloom.metrics.evaluation import Rows, Tree
from fedloom.metrics.scores import Criterion, Metric, accuracy, cross_entropy, loss
from fedloom.models.adapters import how_to_bring
from fedloom.models.model import Model
from fedloom.problem import Key, Vector
from fedloom.tasks.evaluated import PARTS, TEST_BLOCKS, Evaluation
from fedloom.tasks.origin import UNTUNED, Origin, Paper
from fedloom.tasks.reported import Reported

Source = FederatedData | Quadratics


@dataclasses.dataclass(frozen=True)
class Setting:
    """What was run with one algorithm: everything that an engine takes besides the task, and who chose it."""

    algorithm: Algorithm
    solver: Solver
    cohort: CohortRule
    rounds: int
    engine: str = "simulate"
    buffer: int = 1  # with engine "events": replies per server update, which counts as a round
    origin: Origin | None = None  # None: the paper of the task; without a paper, nobody has tuned it


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """Data, a model, a loss, metrics, and the papers' settings. `load` reads the data."""

    name: str
    data: Source | Callable[[int], Source]  # or a function of the seed that makes them
    model: Model | None = None  # None for quadratics, which are functions of w
    criterion: Criterion | Coupled = cross_entropy  # (outputs, y) -> the loss of each example
    metrics: tuple[Metric, ...] = (accuracy,)  # besides the loss
    prepare: Prepare = plain  # (stored rows, key or None) -> (x, y) as model and loss take them
    weights: str | ArrayLike = "examples"  # population weights p_k: "examples", "uniform" or an array
    about: str = ""
    paper: str = ""
    # {variant: {algorithm: setting}}; the first variant is the usual one.
    settings: Mapping[str, Mapping[str, Setting]] = dataclasses.field(default_factory=dict)
    tuned_over: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)  # the paper's grids
    reported: tuple[Reported, ...] = ()
    target: tuple[str, float] | None = None  # the metric by which methods are compared, and the value to reach
    needs: tuple[str, ...] = ()  # what must be in the data directory, by the names in docs/data.md
    evaluations: int = 100  # of a run; fewer where the test set is large beside a round's work

    def __post_init__(self) -> None:
        names = ["loss", *(m.name for m in self.metrics)]
        if len(set(names)) < len(names):
            raise ValueError(f"Task {self.name!r}: every metric needs a different name, got {', '.join(names)}.")

    def load(self, seed: int = 0) -> "Loaded":
        """Read or draw the data, split them, and initialise the model. The seed determines split and initial model."""
        if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
            raise ValueError(f"seed must be an integer from 0 to 2^32 - 1, got {seed!r}.")
        self._check_kinds()
        data = self.data(int(seed)) if callable(self.data) else self.data
        if isinstance(data, Quadratics):
            return Loaded(self, None, data, jnp.zeros(data.centers.shape[1]))
        if not isinstance(data, FederatedData):
            raise ValueError(f"Task {self.name!r}: data must be FederatedData, e.g. by_client(...), got {data!r:.80}.")
        if not isinstance(self.model, Model):
            raise ValueError(f"Task {self.name!r} has data but no model; give it one, e.g. models.mlp(20, 32, 3).")
        self._check_outputs(data, self.model)
        training = training_loss(self.criterion, self.model, self.prepare)
        federation = data.federation(training, self.model.unravel, self.weights)
        return Loaded(self, data, federation, self.model.flat(seed))

    def _check_kinds(self) -> None:
        """Modules and losses of other libraries have to be brought."""
        if not isinstance(self.model, Model | None):
            raise ValueError(
                f"Task {self.name!r}: model must be a Model, e.g. models.mlp(20, 32, 3), got a "
                f"{type(self.model).__name__}{how_to_bring(self.model)}."
            )
        if "torch" in {
            getattr(of, "__module__", "").split(".")[0] for of in (self.criterion, *type(self.criterion).__mro__)
        }:
            raise ValueError(
                f"Task {self.name!r}: criterion is a loss of PyTorch; give it as metrics.from_torch(loss), with "
                "reduction='none'."
            )

    def _check_outputs(self, data: FederatedData, model: Model) -> None:
        """Cross-entropy needs integer labels for which the model has outputs; JAX would silently make nan of others."""
        rows = jax.tree.map(lambda a: jax.ShapeDtypeStruct((2, *a.shape[1:]), a.dtype), data.train)
        key = jax.random.key(0)
        outputs, y = jax.eval_shape(lambda rows: _outputs_and_targets(self, model, rows, key), rows)
        if self.criterion is not cross_entropy:
            return
        if not jnp.issubdtype(y.dtype, jnp.integer):
            raise ValueError(f"Task {self.name!r}: cross_entropy needs integer labels y, got {y.dtype}.")
        if data.classes is not None and outputs.shape[-1] < data.classes:
            raise ValueError(
                f"Task {self.name!r}: the model has {outputs.shape[-1]} outputs, but there are {data.classes} classes."
            )

    def setting(self, algorithm: str, variant: str | None = None) -> Setting:
        """What the paper ran with an algorithm; if no variant is given, in the first that has the algorithm."""
        if variant is not None and variant not in self.settings:
            raise ValueError(f"Task {self.name!r} has no variant {variant!r}.{nearest(variant, self.settings)}")
        tables = list(self.settings.values()) if variant is None else [self.settings[variant]]
        for table in tables:
            if algorithm in table:
                return table[algorithm]
        known = {name for table in tables for name in table}
        raise ValueError(f"Task {self.name!r} has no published setting for {algorithm!r}.{nearest(algorithm, known)}")

    def origin(self, setting: Setting) -> Origin:
        """Where one of the task's settings comes from."""
        return setting.origin or (Paper(self.paper) if self.paper else UNTUNED)


def _outputs_and_targets(task: Task, model: Model, rows: Rows, key: Key) -> tuple[jax.Array, jax.Array]:
    x, y = task.prepare(rows, key)
    return model.apply(model.init(key), x, key), y


@functools.cache  # the same function for the same task, so that compiled programs are shared
def training_loss(criterion: Criterion | Coupled, model: Model, prepare: Prepare) -> Loss:
    """Prepare the rows, apply the model, compare. The key feeds augmentation and dropout."""

    def prepared(rows: Rows, key: Key | None) -> tuple[Any, jax.Array, Key | None]:
        first, second = (None, None) if key is None else jax.random.split(key)
        return *prepare(rows, first), second

    summed = None if model.summed is None else model.summed(criterion)
    outside = None if summed is None else Outside(prepared, summed)

    if isinstance(criterion, Coupled):

        def of_batch(params: Tree, rows: Rows, mask: jax.Array, key: Key | None) -> jax.Array:
            x, y, key = prepared(rows, key)
            if summed is not None:
                return summed(params, x, y, mask, key)
            return criterion.of(model.apply(params, x, key), y, mask)

        return Coupled(of_batch, outside)

    def of_rows(params: Tree, rows: Rows, key: Key | None) -> jax.Array:
        x, y, key = prepared(rows, key)
        return criterion(model.apply(params, x, key), y)

    if summed is None:
        return of_rows

    def of_sum(params: Tree, rows: Rows, weights: jax.Array, key: Key | None) -> jax.Array:
        x, y, key = prepared(rows, key)
        return summed(params, x, y, weights, key)

    return Summed(of_sum, of_rows, outside)


@dataclasses.dataclass(frozen=True, eq=False)
class Loaded:
    """A task with its data in memory: what `simulate` needs, and how to evaluate what it returns."""

    task: Task
    data: FederatedData | None
    federation: Federation
    w: Vector  # the initial model

    def setting(self, algorithm: str, variant: str | None = None) -> Setting:
        """What the paper ran with an algorithm: `Task.setting`."""
        return self.task.setting(algorithm, variant)

    @property
    def metrics(self) -> dict[str, Metric]:
        """The task's metrics by name, the loss first."""
        return {m.name: m for m in (loss(self.task.criterion), *self.task.metrics)}

    def evaluate(self, w: Vector, what: Sequence[str] | None = None) -> dict[str, float]:
        """Metrics of a model: those of `what`, such as ("train", "test accuracy"), or the usual ones.

        `Experiment.evaluate` takes the same entries; see `fedloom.tasks.Evaluation`.
        """
        return {name: v for name, v in Evaluation(self, what).of(w).items() if name != TEST_BLOCKS}

    def scores(self, w: Vector, part: str = "test") -> dict[str, float]:
        """Every metric over all examples of a part: "test", "train" (what clients train on) or "validation"."""
        return evaluation.total(self.examplewise(w, part))

    def by_client(self, w: Vector, part: str = "test") -> dict[str, evaluation.ByClient]:
        """Every metric of the model w on each client's own test (or training, or validation) examples."""
        return self._named(evaluation.by_client(self.examplewise(w, part), self.in_order(part)))

    def of_client(self, w: Vector, k: int, part: str = "test", names: Iterable[str] | None = None) -> dict[str, float]:
        """Metrics, all or the named ones, of the model w on the examples of client k alone; nan if it has none."""
        split = self._split(part)
        own = split.rows(k)
        order = jnp.asarray(np.resize(own, split.sizes.max()))  # repeated: one program for clients of all sizes
        scores = evaluation.examplewise(self._store(part), w, self._score(names), self._examples.unravel, order)
        values = evaluation.by_client(scores, Split(np.arange(len(own)), np.array([len(own)])))
        return {name: float(value) for name, (value,) in values.items()}

    def by_own_model(
        self, models: ArrayLike, part: str = "test", names: Iterable[str] | None = None
    ) -> dict[str, evaluation.ByClient]:
        """Metrics, all or the named ones, of each client's own model, models[k], on its examples; see `own_models`."""
        store, split = self._store(part), self._split(part)
        return self._named(evaluation.own_models(store, split, models, self._score(names), self._examples.unravel))

    def own_models(self, algorithm: Algorithm, clients: Mapping[int, Any]) -> np.ndarray:
        """The clients' own models, one in each row, from the memories in a record, if the method keeps them."""
        first = algorithm.own_model(algorithm.init_client(self.w))
        if first is None:
            raise ValueError(f"{type(algorithm).__name__} does not keep a model for each client.")
        models = np.tile(np.asarray(first), (self.federation.clients, 1))
        for k, memory in clients.items():
            models[k] = algorithm.own_model(memory)
        return models

    def evaluate_own(self, algorithm: Algorithm, clients: Mapping[int, Any]) -> dict[str, float]:
        """The clients' own models, each on its own examples: the training loss by p_k, test metrics by examples."""
        models = self.own_models(algorithm, clients)
        losses = self.by_own_model(models, "train", ["loss"])["loss"].values
        values = {"own train loss": float(np.asarray(self.federation.weights) @ losses)}
        if self.data is not None and self.data.test_split is not None:
            for name, metric in self.by_own_model(models, "test").items():
                known = ~np.isnan(metric.values)
                sizes = self.data.test_split.sizes[known]
                mean = np.average(metric.values[known], weights=sizes) if known.any() else np.nan
                values[f"own test {name}"] = float(mean)
        return values

    def in_order(self, part: str) -> Split:
        """Who owns which of the examples of a part, as `examplewise` has them."""
        split = self._split(part)
        return split if part == "test" else Split(np.arange(len(split.order)), split.sizes)

    def _named(self, values: dict[str, np.ndarray]) -> dict[str, evaluation.ByClient]:
        return {name: evaluation.ByClient(v, self.metrics[name].larger_is_better) for name, v in values.items()}

    @property
    def _examples(self) -> Examples:
        if not isinstance(self.federation, Examples):
            raise ValueError(f"Task {self.task.name!r} is a function of w: it has no examples, only federation.loss.")
        return self.federation

    def _split(self, part: str) -> Split:
        assert self.data is not None
        data = self.data
        split = {"train": data.split, "validation": data.validation_split, "test": data.test_split}[part]
        if split is None:
            own = "" if part == "validation" else " of their own"
            raise ValueError(f"The clients of task {self.task.name!r} have no {part} examples{own}; use part='train'.")
        return split

    def _store(self, part: str) -> Rows:
        if part not in PARTS:
            raise ValueError(f"part must be 'train', 'validation' or 'test', got {part!r}.")
        train = self._examples.store
        assert self.data is not None
        if part == "test" and self.data.test is None:
            raise ValueError(f"Task {self.task.name!r} has no test examples; use part='train'.")
        return self.data.test if part == "test" else train

    def _score(self, names: Iterable[str] | None = None) -> evaluation.Scorer:
        assert self.task.model is not None
        metrics = self.metrics
        chosen = tuple(metrics[name] for name in (metrics if names is None else names))
        return evaluation.Scorer(chosen, self.task.model.apply, self.task.prepare, self.task.criterion)

    def examplewise(self, w: Vector, part: str, names: Iterable[str] | None = None) -> evaluation.Scores:
        """What metrics, all or the named ones, need of each example of a part.

        That is a numerator and a denominator or, for a function of all examples, its label and what else it is given.
        Test examples are in the order of the test set, others client after client.
        """
        store, order = self._store(part), self._order(part)
        return evaluation.examplewise(store, w, self._score(names), self._examples.unravel, order)

    def examplewise_all(
        self, models: jax.Array, part: str, names: Iterable[str] | None = None
    ) -> list[evaluation.Scores]:
        """`examplewise` for several small models [models, d] at once; the same up to rounding."""
        store, order = self._store(part), self._order(part)
        return evaluation.examplewise_all(store, models, self._score(names), self._examples.unravel, order)

    def _order(self, part: str) -> jax.Array | None:
        return None if part == "test" else jnp.asarray(self._split(part).order)
