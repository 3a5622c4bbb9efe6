"""What is evaluated of a model: metrics of training, validation and test examples, and figures of the population."""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.algorithm import Algorithm
from fedloom.algorithms.last_models import keeping_models
from fedloom.client import Solver
from fedloom.hyperparameters import nearest
from fedloom.metrics import evaluation
from fedloom.metrics.evaluation import Scores
from fedloom.metrics.scored import Ratio, Scored
from fedloom.metrics.scores import Metric
from fedloom.problem import Vector
from fedloom.tasks.figures import FIGURES, ClientModels, Moment
from fedloom.tasks.sample import losses, sample_loss, sample_losses, sample_rows

if TYPE_CHECKING:
    from fedloom.tasks.task import Loaded

PARTS = ("train", "validation", "test")
LAST, PLAIN = "last models", "plain last models"
MEMBER = "last member test"
# What an experiment can evaluate: the entries of its field `evaluate`, and the metrics that they add.
ENTRIES = {
    "train": "`train loss`, the objective f(w) over all clients",
    "train:5000": "`train:5000 loss`: an unbiased estimate of f(w) from 5,000 training examples, the same each time",
    "train accuracy": "any metric of the task on training examples, averaged over clients as the objective is",
    "validation": "`validation loss` and the task's other metrics, on the [validation examples](data.md#validation)",
    "test": "`test loss`, `test accuracy`, ... on the global test set",
    "test accuracy": "a single metric",
    **{name: figure.words for name, figure in FIGURES.items()},
    LAST: "what is evaluated by default, of the mean of the models with which each client's last local training ended",
    f"{LAST} test accuracy": "a single metric of that mean: what FedDyn's curves show",
    f"{PLAIN} test accuracy": "of their plain mean, in which clients of different sizes count alike: what FedDyn's "
    "program measures of FedDyn and SCAFFOLD",
    f"{MEMBER} accuracy": "a metric of the server's model on the own test examples of a single client, the last member "
    "of the round's cohort: what the code of linear speedup measures",
}
# With more training examples in all, the training loss costs more than the rounds between two evaluations often do; it
# is then evaluated only if it is asked for.
FEW_EXAMPLES = 20_000
# What is missing where a part has no metrics.
LACKING = {
    "validation": "validation examples; hold some out with validation = 0.1",
    MEMBER: "test examples of every single client",
}
MANY_OWNERS = 30  # of test examples: then blocks are of owners
TEST_BLOCKS = "test blocks"  # beside the metrics of a model: each of those on the test set, on blocks of it


class Evaluation:
    """What is evaluated of the models of a loaded task; each entry of `what` adds some metrics, as ENTRIES says.

    None stands for all metrics of the test and validation examples and, if the clients have at most FEW_EXAMPLES
    training examples in all or if there is no test set, the training loss; and for the metric of the task's target.
    Nothing else is computed.

    Some metrics are of an experiment's method: they need its algorithm and its solver. Where the clients' last models
    are evaluated, `algorithm` is the method to run in its place, whose clients remember them. `last_member` says, after
    t rounds, which client was the last member of the last cohort; before the first round, of the first cohort.
    """

    def __init__(
        self,
        loaded: "Loaded",
        what: Sequence[str] | None = None,
        algorithm: Algorithm | None = None,
        solver: Solver | None = None,
        own_models: bool = False,
        last_member: Callable[[int], int] | None = None,
    ):
        self.loaded, self.algorithm, self.solver, self.last_member = loaded, algorithm, solver, last_member
        self.own_models = own_models  # whether the clients' own models are evaluated too
        self.what = usual(loaded, algorithm is not None) if what is None else tuple(what)
        self.known = known_metrics(loaded)
        self.train = False
        self.samples: dict[int, jax.Array] = {}  # the rows of each sample, by their number
        self.chosen: dict[str, list[str]] = {part: [] for part in (*PARTS, MEMBER)}
        self.figures: list[str] = []
        of_means: dict[str, list[str]] = {LAST: [], PLAIN: []}
        for entry in self.what:
            if entry in FIGURES:
                self.figures = list(dict.fromkeys([*self.figures, entry]))
            elif mean := mean_of_models(entry):
                own = entry.removeprefix(mean).strip()
                of_means[mean] += [own] if own else usual(loaded)
            else:
                self._choose(entry)
        # What is evaluated of the means of last models, by mean.
        self.means = {mean: Evaluation(loaded, entries) for mean, entries in of_means.items() if entries}
        self._check_method()
        self.owners = owners_of_tests(loaded)

    def _choose(self, entry: str) -> None:
        if sample := re.fullmatch(r"train:(\d+)( loss)?", entry):
            n = int(sample[1])
            self.samples.setdefault(n, jnp.asarray(sample_rows(self.loaded, n)))
            return
        part = next((part for part in self.chosen if f"{entry} ".startswith(f"{part} ")), None)
        there = [name for name in self.known if name.startswith(f"{part} ")]
        names = [name for name in there if entry in (part, name)]
        if part is not None and not there:
            raise ValueError(
                f"evaluate: task {self.loaded.task.name!r} has no {LACKING.get(part, f'{part} examples')}."
            )
        if part is None or not names:
            raise ValueError(f"evaluate: there is no metric {entry!r}.{nearest(entry, [*self.known, LAST, PLAIN])}")
        if entry in ("train", "train loss"):
            self.train = True
        else:
            self.chosen[part] = list(dict.fromkeys([*self.chosen[part], *(n.removeprefix(part + " ") for n in names)]))

    def _check_method(self) -> None:
        """Metrics of a method need one; if they are of models that clients trained, one that remembers these."""
        of_clients = [name for name in self.figures if FIGURES[name].of_clients] + [*self.means]
        of_member = [f"{MEMBER} {name}" for name in self.chosen[MEMBER]]
        of_method = [name for name in self.figures if FIGURES[name].of_method] + of_clients + of_member
        alone = self.algorithm is None or self.solver is None or (of_member and self.last_member is None)
        if of_method and alone:
            raise ValueError(f"evaluate: {of_method[0]!r} belongs to a method; evaluate it in an experiment.")
        if of_clients and self.algorithm is not None:
            try:
                self.algorithm = keeping_models(self.algorithm, self.loaded.w)
            except ValueError as error:
                words = f"evaluate: {of_clients[0]!r} is of models that clients have trained, but {error}"
                raise ValueError(words) from error
        self.of_clients = self.own_models or bool(of_clients)  # whether the memories of the clients are needed
        self.of_method = self.own_models or bool(of_method)  # whether something depends on more than the model

    @property
    def metrics(self) -> dict[str, Metric]:
        """The metrics that are evaluated, by their names in a log."""
        found = {name: self.known[name] for name in ["train loss"] * self.train}
        found |= {f"train:{n} loss": self.known["train loss"] for n in self.samples}
        for part, chosen in self.chosen.items():
            found |= {f"{part} {name}": self.known[f"{part} {name}"] for name in chosen}
        found |= {name: self.known[name] for name in self.figures}
        for mean, of_mean in self.means.items():
            found |= {f"{mean} {name}": metric for name, metric in of_mean.metrics.items()}
        if self.own_models:
            found["own train loss"] = self.known["train loss"]
            if self.loaded.data is not None and self.loaded.data.test_split is not None:
                found |= {f"own test {name}": metric for name, metric in self.loaded.metrics.items()}
        return found

    def check(self) -> None:
        """Raise a sentence if a cohort has no last member, or a function of all examples no number at the start."""
        if self.chosen[MEMBER] and self.last_member is not None:
            self.last_member(0)
        for part, chosen in self.chosen.items():
            if names := tuple(name for name in chosen if self.loaded.metrics[name].function is not None):
                check_numbers(self.loaded, part, names)
        for of_mean in self.means.values():
            of_mean.check()

    def of(self, w: Vector, clients: Mapping[int, Any] | None = None, t: int = 0) -> dict[str, Any]:
        """The metrics of the model after t rounds, and TEST_BLOCKS. `clients` has the memories that there are."""
        found, w = self.loaded, jax.device_put(w, jax.local_devices()[0])  # where rounds leave it: one program for all
        values: dict[str, Any] = {"train loss": float(found.federation.loss(w))} if self.train else {}
        for n, rows in self.samples.items():
            values[f"train:{n} loss"] = float(sample_loss(found.federation, rows, w))
        scores = {part: found.examplewise(w, part, self.chosen[part]) for part in PARTS if self.chosen[part]}
        values |= self._totals(scores)
        if names := self.chosen[MEMBER]:
            assert self.last_member is not None
            own = found.of_client(w, self.last_member(t), "test", names)
            values |= {f"{MEMBER} {name}": value for name, value in own.items()}
        blocks = self._blocks(scores)
        models = None
        if self.of_clients:
            assert self.algorithm is not None
            models = ClientModels(self.algorithm, found.w, found.federation.weights, clients or {})
        moment = Moment(found.federation, w, t, self.algorithm, self.solver, models)
        values |= {name: FIGURES[name].of(moment) for name in self.figures}
        for mean, of_mean in self.means.items():
            assert models is not None
            row = of_mean.of(jnp.asarray(models.mean if mean == LAST else models.plain_mean, w.dtype))
            blocks |= {f"{mean} {name}": b for name, b in row.pop(TEST_BLOCKS, {}).items()}
            values |= {f"{mean} {name}": value for name, value in row.items()}
        if self.own_models:
            assert self.algorithm is not None
            values |= found.evaluate_own(self.algorithm, clients or {})
        return values | ({TEST_BLOCKS: blocks} if blocks else {})

    def of_each(self, models: jax.Array) -> list[dict[str, Any]]:
        """`of` for several small models [models, d] at once; the same up to rounding. Not for metrics of a method."""
        found = self.loaded
        columns = {"train loss": losses(found.federation, models)} if self.train else {}
        for n, rows in self.samples.items():
            columns[f"train:{n} loss"] = sample_losses(found.federation, rows, models)
        every = {part: found.examplewise_all(models, part, self.chosen[part]) for part in PARTS if self.chosen[part]}
        values = []
        for i, w in enumerate(models):
            scores = {part: of_models[i] for part, of_models in every.items()}
            moment = Moment(found.federation, w, 0, None, None, None)
            own = {name: float(x[i]) for name, x in columns.items()} | self._totals(scores)
            own |= {name: FIGURES[name].of(moment) for name in self.figures}
            values.append(own | ({TEST_BLOCKS: blocks} if (blocks := self._blocks(scores)) else {}))
        return values

    def _totals(self, scores: Mapping[str, Scores]) -> dict[str, Any]:
        values = {}
        for part, of_part in scores.items():
            for name, scored in of_part.items():
                as_objective = part == "train" and isinstance(scored, Ratio)
                values[f"{part} {name}"] = self._mean_of_clients(scored) if as_objective else scored.value()
        return values

    def _mean_of_clients(self, scored: Scored) -> float:
        """A metric of each client's training examples, averaged by p_k as f(w) is, where it is defined."""
        values, p = scored.by_client(self.loaded.in_order("train")), np.asarray(self.loaded.federation.weights, float)
        known = ~np.isnan(values)
        return float(p[known] @ values[known] / p[known].sum()) if known.any() else float("nan")

    def _blocks(self, scores: Mapping[str, Scores]) -> dict[str, list[float]]:
        """The test metrics on blocks of the test set; a metric that is not defined without some block has none."""
        found = {f"test {name}": scored.blocks(self.owners) for name, scored in scores.get("test", {}).items()}
        return {name: blocks for name, blocks in found.items() if blocks}


def on_test_examples(metric: str) -> bool:
    """Whether a metric, by its name in a log, is of test examples."""
    of_a_mean = mean_of_models(metric)
    return metric.removeprefix("own ").removeprefix(f"{of_a_mean} ").startswith(("test ", MEMBER + " "))


def mean_of_models(entry: str) -> str:
    """The mean of clients' last models that an entry or a metric is of; empty if it is of no such mean."""
    return next((mean for mean in (LAST, PLAIN) if f"{entry} ".startswith(f"{mean} ")), "")


@functools.lru_cache(maxsize=8)  # runs share their data, and a pass over these may take long
def check_numbers(loaded: "Loaded", part: str, names: tuple[str, ...]) -> None:
    """Raise a sentence unless these functions of all examples of the part give numbers for the initial model."""
    try:
        evaluation.total(loaded.examplewise(loaded.w, part, names))
    except ValueError as error:
        raise ValueError(f"evaluate: {error} (That was with the initial model and the {part} examples.)") from error


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
        found = {"train loss": Metric("loss", None, larger_is_better=False)}  # any function of w
    else:
        there = {"train": data.split, "validation": data.validation_split, "test": data.test}
        parts = [part for part in PARTS if there[part] is not None]
        found = {f"{part} {name}": metric for part in parts for name, metric in loaded.metrics.items()}
    figures = {name: figure.metric(name) for name, figure in FIGURES.items()}
    of_a_model = found | {name: metric for name, metric in figures.items() if not FIGURES[name].of_method}
    every = data is not None and data.test_split is not None and data.test_split.sizes.min() > 0
    of_one = {name: m for name, m in loaded.metrics.items() if m.function is None} if every else {}  # never nan
    found |= figures | {f"{mean} {name}": metric for mean in (LAST, PLAIN) for name, metric in of_a_model.items()}
    return found | {f"{MEMBER} {name}": metric for name, metric in of_one.items()}


def usual(loaded: "Loaded", of_method: bool = False) -> tuple[str, ...]:
    """What is evaluated if nothing is asked for, of a model or, with `of_method`, in an experiment with a method."""
    data, target = loaded.data, loaded.task.target
    cheap = data is None or data.test is None or data.split.sizes.sum() <= FEW_EXAMPLES
    found = ["train"] if cheap else []
    if data is not None:
        found += [
            part for part, there in (("validation", data.validation_split), ("test", data.test)) if there is not None
        ]
    if target is not None and target[0] in known_metrics(loaded) and (of_method or not _is_of_method(target[0])):
        found += [target[0]] * (target[0] not in Evaluation(loaded, found).metrics)
    return tuple(found)


def _is_of_method(entry: str) -> bool:
    return bool(mean_of_models(entry)) or entry.startswith(MEMBER) or (entry in FIGURES and FIGURES[entry].of_method)
