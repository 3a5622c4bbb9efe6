"""Where to start on a task: for each method the step sizes of theory and, beside them, the usual practical ones.

Theorems hold for the worst case. PRACTICE has what people use instead, as multiples of 1/L or of L, so that they carry
over from task to task; where the numbers come from is in docs/theory.md.
"""

import dataclasses
import json
import math
import pathlib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from fedloom.algorithms import ALGORITHMS
from fedloom.diagnosis.suggestion import LR, from_theory, has_steps, stable_step, theorems_about
from fedloom.experiments.arguments import Names, name_list
from fedloom.experiments.changes import changed
from fedloom.experiments.comparisons import comparison
from fedloom.experiments.definition import Experiment, method_name
from fedloom.experiments.spaces import SPACES
from fedloom.experiments.text import columns
from fedloom.tasks import Task
from fedloom.theory import Constants, constants


class Usual(NamedTuple):
    """A value that is usual in practice: times L, times 1/L, or a number."""

    field: str
    times: float
    of: str  # "1/L", "L" or "" for a number
    reason: str


_LOCAL = "a step with which gradient descent is stable; theorems about K local steps divide it by K"
_HALF = "half of the usual local step, as adaptive servers and control variates like it"
_SERVER = "the server takes the mean of the models; theorems have more, because their local steps are so small"

NO_THEOREM = "There is no theorem about it here: a stable local step, and the method's defaults."

PRACTICE: dict[str, tuple[Usual, ...]] = {
    "fedavg": (Usual(LR, 1, "1/L", _LOCAL), Usual("algorithm.lr", 1, "", _SERVER)),
    "fedprox": (
        Usual(LR, 1, "1/L", _LOCAL),
        Usual("algorithm.mu", 1e-3, "L", "a weak pull to the server's model; theorem 4 wants several times L"),
        Usual("algorithm.lr", 1, "", _SERVER),
    ),
    "scaffold": (Usual(LR, 0.5, "1/L", _HALF), Usual("algorithm.lr", 1, "", _SERVER)),
    "feddane": (
        Usual(LR, 1, "1/L", _LOCAL),
        Usual("algorithm.mu", 0.05, "L", "the theorems want at least 5 L B^2"),
    ),
    "feddyn": (
        Usual(LR, 1, "1/L", _LOCAL),
        Usual("algorithm.alpha", 1e-2, "L", "the theorems want at least 20 L, which local steps hardly move against"),
    ),
    "feddyn-onegd": (Usual("algorithm.alpha", 2, "L", "a gradient step of 1/(2L); the theorem wants at least 50 L"),),
    "feddr": (
        Usual(LR, 1, "1/L", _LOCAL),
        Usual("algorithm.eta", 30, "1/L", "clients go further than with the 1/(3L) of corollary 3.1"),
        Usual("algorithm.alpha", 1, "", "as in corollary 3.1"),
    ),
    "fedadagrad": (
        Usual(LR, 1, "1/L", _LOCAL),
        Usual("algorithm.lr", 0.1, "", "an entry of the model moves by about so much in a round"),
        Usual("algorithm.tau", 1e-3, "", "the paper's choice for most tasks; the theorem has G/L"),
        Usual("algorithm.beta1", 0, "", "as in the theorem"),
    ),
    "fedadam": (
        Usual(LR, 0.5, "1/L", _HALF),
        Usual("algorithm.lr", 0.01, "", "an entry of the model moves by about so much in a round"),
        Usual("algorithm.tau", 1e-3, "", "the paper's choice for most tasks; the theorem has G/L"),
        Usual("algorithm.beta1", 0.9, "", "momentum as in the paper's experiments; the theorem has none"),
        Usual("algorithm.beta2", 0.99, "", "as in the paper"),
    ),
}


@dataclasses.dataclass(frozen=True)
class Start:
    """Where to start with one method."""

    method: str
    theory: dict[str, float]  # empty if no step sizes follow from a theorem
    practice: dict[str, float]
    reasons: dict[str, str]  # of the values of `practice`
    theorem: str  # its name; "none" if no step sizes follow from one
    sentences: tuple[str, ...]  # what the theorem assumes, and what fails; or why there is none


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """Where to start on a task, with each method."""

    task: str
    variant: str | None
    rounds: int
    constants: Constants
    starts: tuple[Start, ...]

    def text(self) -> str:
        """A table for reading."""
        L = self.constants.L
        rows: list[tuple[str, ...]] = [("method", "field", "theory", "practice", "theorem")]
        for start in self.starts:
            names = iter((start.method, start.theorem))
            for field in dict.fromkeys((*start.theory, *start.practice)):
                values = (_shown(table.get(field)) for table in (start.theory, start.practice))
                rows.append((next(names, ""), field, *values, next(names, "")))
        head = f"{self.task}: L = {L.value:.4g}{'' if 'L' in self.constants.everywhere else ' at the initial model'}"
        without = [f"{start.method}: {words}" for start in self.starts if not start.theory for words in start.sentences]
        return "\n".join((head, "", columns(rows), *([""] if without else []), *without))

    def to_toml(self) -> str:
        """The file that `fedloom tune --around` takes."""
        lines = [
            f"# Where to start on {self.task}, for {self.rounds} rounds.",
            "# theory: what a theorem recommends, which is slow but proved under its assumptions.",
            "# practice: what is usual; `fedloom tune TASK --around FILE` starts its searches there.",
            f"task = {_quoted(self.task)}",
            *([] if self.variant is None else [f"variant = {_quoted(self.variant)}"]),
        ]
        for start in self.starts:
            key = start.method if re.fullmatch("[A-Za-z0-9_-]+", start.method) else _quoted(start.method)
            lines += ["", f"[{key}]", f"theorem = {_quoted(start.theorem)}"]
            lines += [f"# {sentence}" for sentence in start.sentences]
            if start.theory:
                lines += [f"[{key}.theory]", *(f"{field} = {value!r}" for field, value in start.theory.items())]
            lines += [f"[{key}.practice]"]
            lines += [f"{field} = {value!r}  # {start.reasons[field]}" for field, value in start.practice.items()]
        return "\n".join(lines) + "\n"


def suggest(
    task: str | Task = "digits", algorithms: Names | None = None, variant: str | None = None, **changes: Any
) -> Suggestion:
    """Where to start with each method: the step sizes of theory, and the usual practical ones.

    Args:
        task: the name of a task, FILE.py:NAME, or a task.
        algorithms: names, also as "fedavg,scaffold", or FILE.py:NAME; None: all that the task has settings for.
        variant: the settings whose solvers and cohorts are kept; the first for the engine if None.
        changes: fields to change in all experiments: rounds=50.
    """
    names = None if algorithms is None else name_list(algorithms)
    bases = dict(comparison(task, names, seeds=[0], variant=variant, changes=changes))
    known: dict[Any, Constants] = {}  # by the size of minibatches
    starts = []
    for name, e in bases.items():
        batch = getattr(e.solver, "batch_size", None)
        if batch not in known:
            known[batch] = constants(e.check().loaded, solver=e.solver)
        starts.append(start(name, e, known[batch]))
    first = next(iter(bases.values()))
    named = first.task.name if isinstance(first.task, Task) else first.task
    return Suggestion(named, variant, first.rounds, next(iter(known.values())), tuple(starts))


def start(name: str, e: Experiment, c: Constants) -> Start:
    """Where to start with the method of an experiment."""
    L = c.L.value
    if not (math.isfinite(L) and L > 0):
        raise ValueError(f"Nothing can be suggested: L is {'not known' if math.isnan(L) else f'{L:.3g}'}.")
    theory: dict[str, float] = {}
    sentences: Sequence[str] = ()
    try:
        found = from_theory(e, measured=c)
        theory, sentences, theorem = found.values, found.sentences[1:], found.theorem.name
    except ValueError as error:
        theorem, sentences = "none", [str(error) if theorems_about(e.algorithm) else NO_THEOREM]
    usual = PRACTICE.get(method_name(e.algorithm))
    values, reasons = _defaults(e) if usual is None else _usual(usual, e, L)
    if has_steps(e) and LR in (values if usual is not None else {LR}):
        times = 1.0 if usual is None else next(u.times for u in usual if u.field == LR)
        lr, formula = stable_step(changed(e, {k: v for k, v in values.items() if k != LR}), c)
        multiple = "" if times == 1 else f"{times:g} times "
        reason = _LOCAL if usual is None else next(u.reason for u in usual if u.field == LR)
        values = {LR: _rounded(times * lr), **{k: v for k, v in values.items() if k != LR}}
        reasons[LR] = f"{multiple}{formula}: {reason}"
    return Start(name, theory, values, reasons, theorem, tuple(sentences))


def _usual(usual: Sequence[Usual], e: Experiment, L: float) -> tuple[dict[str, float], dict[str, str]]:
    """Without the client's step, which depends on the other values."""
    values, reasons = {}, {}
    for u in usual:
        if u.field == LR and not has_steps(e):
            continue
        values[u.field] = _rounded(u.times * {"1/L": 1 / L, "L": L, "": 1.0}[u.of])
        multiple = f"{u.times:g} times {u.of}: " if u.of else ""
        reasons[u.field] = f"{multiple}{u.reason}"
    return values, reasons


def _defaults(e: Experiment) -> tuple[dict[str, float], dict[str, str]]:
    """The defaults of a method, of the fields that `tune` would vary."""
    name = method_name(e.algorithm)
    if name not in ALGORITHMS:
        return {}, {}
    made = ALGORITHMS[name]()
    fields = [axis.field for axis in SPACES.get(name, ()) if axis.field.startswith("algorithm.")]
    own = {f: getattr(made, f.split(".", 1)[1], None) for f in fields}
    values = {field: float(value) for field, value in own.items() if isinstance(value, int | float)}
    return values, dict.fromkeys(values, "the method's default")


def write_new(text: str, path: pathlib.Path) -> None:
    """Write a file that must not exist."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ValueError(f"{path} exists already, and is not overwritten; choose another name with --out.") from None


def _rounded(value: float) -> float:
    """Two digits: practice is not more precise."""
    return float(f"{value:.2g}")


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _quoted(text: str) -> str:

    return json.dumps(text)
