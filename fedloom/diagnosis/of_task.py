"""Diagnosing a task: its constants, which theorems say what about its methods, and how far practice is from them."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedloom.algorithm import Algorithm
from fedloom.algorithms import ALGORITHMS
from fedloom.data.quadratic import Quadratics
from fedloom.diagnosis.setting import setting_of
from fedloom.diagnosis.simulated import WORK, Measure, Simulated, own_rounds, simulated
from fedloom.diagnosis.verdict import HOLDS, StepSize, Verdict, about, step_sizes, verdicts
from fedloom.experiments.changes import changed
from fedloom.experiments.definition import Experiment, method_name
from fedloom.experiments.settings import experiment, methods
from fedloom.hyperparameters import brief, positive
from fedloom.tasks import Loaded, Task
from fedloom.theory import THEOREMS, Constants, Measured, Setting, constants

CONSTANTS = 0.5  # of the usual effort is spent on constants: the runs take time, too


@dataclasses.dataclass(frozen=True)
class Method:
    """What theorems say about one experiment."""

    name: str
    experiment: Experiment
    setting: Setting
    verdicts: tuple[Verdict, ...]  # the best first
    steps: tuple[StepSize, ...]  # of the first theorem
    simulated: Simulated | None  # None: it was not asked for

    @property
    def applying(self) -> tuple[Verdict, ...]:
        """The theorems that apply."""
        return tuple(v for v in self.verdicts if v.status == HOLDS)


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """A task's constants at its initial model, and what theorems say about its methods."""

    task: str
    seed: int
    constants: Constants
    methods: tuple[Method, ...]
    silent: tuple[str, ...] = ()  # methods of the task about which there is no theorem here
    notes: tuple[str, ...] = ()  # about the runs

    def __str__(self) -> str:
        from fedloom.diagnosis.task_text import text  # imported late: a value needs no words

        return text(self)


def diagnose(
    task: str | Task | Experiment,
    algorithms: str | Sequence[str | Algorithm] | None = None,
    *,
    variant: str | None = None,
    seed: int = 0,
    rounds: int | None = None,
    effort: float = 1.0,
    simulate: bool = True,
    say: Callable[[str], None] = lambda words: None,
    **changes: Any,
) -> Diagnosis:
    """What theorems say about a task's methods, with constants that are measured, beside short runs.

    Args:
        task: a task or its name; or an experiment, which is then the only one looked at.
        algorithms: names, separated by commas or in a list; by default those for which the task has settings and some
            theorem is known.
        variant: which of the task's settings.
        seed: of the split, the initial model and the runs. One seed is one seed: theorems bound expectations.
        rounds: to simulate, whatever it takes. By default 20, or fewer where they would take long.
        effort: how much may be spent on constants and runs; 1 is under a minute on two cores.
        simulate: False leaves the runs out.
        say: is told what is being done.
        changes: other fields of the experiments, as `experiment` takes them.
    """
    if not positive.holds(effort):
        raise ValueError(f"effort must be {positive.words}, got {effort!r}.")
    found, silent = _experiments(task, algorithms, variant, seed, rounds, changes)
    e = found[0]
    say(f"{e.base_task().name}: loading")
    loaded = e.check().loaded
    say("measuring constants")
    by_batch: dict[Any, Constants] = {}
    for e in found:
        batch = getattr(e.solver, "batch_size", None)
        if batch not in by_batch:
            by_batch[batch] = constants(loaded, solver=e.solver, seed=e.seed, effort=effort * CONSTANTS)
    first = next(iter(by_batch.values()))
    measure = Measure.on(loaded, first, seed) if simulate else None
    own = [rounds] * len(found) if rounds else own_rounds(found, loaded, WORK * effort)
    made = []
    kinds = [method_name(e.algorithm) for e in found]
    for e, t in zip(found, own, strict=True):
        name = method_name(e.algorithm)
        name = brief(e.algorithm) if kinds.count(name) > 1 else name  # two of one kind
        c = _with_optimum(by_batch[getattr(e.solver, "batch_size", None)], loaded)
        s = setting_of(e, e.check())
        verdict, *others = verdicts(e, c, s)
        run = None
        if measure is not None:
            say(f"simulating {name}")
            run = simulated(verdict, e, c, measure, rounds, WORK * effort / len(found), t)
        made.append(Method(name, e, s, (verdict, *others), tuple(step_sizes(verdict.theorem, e, c, s)), run))
    notes = () if measure is None else measure.notes
    return Diagnosis(found[0].base_task().name, found[0].seed, first, tuple(made), silent, notes)


def _with_optimum(c: Constants, loaded: Loaded) -> Constants:
    """Bounds of convex problems ask how much clients differ at the optimum, too, which is known for quadratics."""
    if not isinstance(loaded.federation, Quadratics) or np.isnan(c.D.value):
        return c
    there = constants(loaded.federation, loaded.federation.optimum()).sigma_g_mean.value
    return dataclasses.replace(c, sigma_g_mean=Measured(max(c.sigma_g_mean.value, there)), at_optimum=True)


def _experiments(
    task: str | Task | Experiment,
    algorithms: str | Sequence[str | Algorithm] | None,
    variant: str | None,
    seed: int,
    rounds: int | None,
    changes: dict[str, Any],
) -> tuple[list[Experiment], tuple[str, ...]]:
    """What is looked at, and the task's methods about which there is no theorem."""
    if rounds is not None and (not isinstance(rounds, int) or isinstance(rounds, bool) or rounds < 1):
        raise ValueError(f"rounds must be a positive integer, got {rounds!r}.")
    if isinstance(task, Experiment):
        if algorithms is not None or variant is not None:
            raise ValueError("algorithms and variant: an experiment has its own; give a task, or leave them out.")
        found = [changed(task, changes)]
    else:
        names: Sequence[str | Algorithm]
        if isinstance(algorithms, str):
            names = [name.strip() for name in algorithms.split(",") if name.strip()]
        else:
            names = algorithms if algorithms is not None else methods(task, variant, changes.get("engine"))
        if not names:
            raise ValueError(f"algorithms must name at least one method, got {algorithms!r}.")
        if twice := [name for i, name in enumerate(names) if isinstance(name, str) and name in names[:i]]:
            raise ValueError(f"algorithms lists {twice[0]} twice.")
        found = [experiment(task, name, variant, **{"seed": seed, **changes}) for name in names]
    known = [e for e in found if about(e.algorithm, e.engine)]
    silent = tuple(method_name(e.algorithm) for e in found if e not in known)
    asked = algorithms is not None or isinstance(task, Experiment)
    if silent and (asked or not known):
        others = sorted(n for n, kind in ALGORITHMS.items() if any(t.algorithm is kind for t in THEOREMS.values()))
        raise ValueError(f"algorithm: no theorem about {silent[0]!r} is known here; choose from {', '.join(others)}.")
    return known, silent
