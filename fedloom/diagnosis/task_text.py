"""A diagnosis for a terminal, and as plain data."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedloom.diagnosis.of_task import Diagnosis, Method
from fedloom.diagnosis.simulated import Curve, Simulated
from fedloom.diagnosis.verdict import FAILS, FREE, HOLDS, UNKNOWN, StepSize, number
from fedloom.experiments.definition import Experiment
from fedloom.experiments.origins import origin
from fedloom.experiments.text import columns
from fedloom.hyperparameters import brief
from fedloom.theory import Constants, Measured

WIDTH = 100
BARS = "▁▂▃▄▅▆▇█"
MEANINGS = {
    "L": "smoothness of the worst client",
    "L_f": "smoothness of f, the mean",
    "mu": "strong convexity of the worst client",
    "rho": "weak convexity of the worst client",
    "sigma_l": "noise of minibatches, worst client",
    "sigma_g": "clients' gradients from that of f, the farthest",
    "sigma_g_mean": "the same, mean over clients",
    "B": "dissimilarity, 1 if all are alike",
    "G": "largest entry of a minibatch's gradient",
    "D": "distance from the start to an optimum",
    "gap": "f at the start less its minimum",
}
READING = (
    "Below, every run has one seed, and bounds are about expectations. Bars are logarithmic: runs share a scale, a "
    "bound has its own."
)


def text(d: Diagnosis) -> str:
    """The diagnosis for a terminal."""
    c = d.constants
    parts = [
        f"{d.task}: {c.clients:,} clients, {c.dimension:,} parameters, seed {d.seed}",
        "Constants at the initial model\n" + _indented(columns(constant_rows(c))),
    ]
    if c.notes:
        parts.append("\n".join(_wrapped(note, "  ") for note in c.notes))
    if any(m.simulated is not None for m in d.methods):
        parts.append("\n".join(_wrapped(note, "  ") for note in (READING, *d.notes)))
    parts += [_method(m) for m in d.methods]
    if d.silent:
        parts.append(f"No theorem is known here about {', '.join(d.silent)}.")
    return "\n\n".join(parts)


def constant_rows(c: Constants) -> list[tuple[str, str, str, str]]:
    """Name, value with its error, where it holds, and what it is."""
    rows = []
    for name, meaning in MEANINGS.items():
        found: Measured = getattr(c, name)
        known = not math.isnan(found.value)
        value = number(found.value) if known else "unknown"
        if known and found.error > 1e-3 * abs(found.value):
            value += " +- ?" if math.isinf(found.error) else f" +- {number(found.error, 2)}"
        rows.append((name, value, "for all w" if name in c.everywhere else "", meaning))
    return rows


def setting_words(e: Experiment) -> str:
    """What is run, and who chose it."""
    return f"{brief(e.algorithm)}, {brief(e.solver)}, {brief(e.cohort)} ({origin(e)['words']})"


def headline(m: Method) -> str:
    """What theorems say about a method, in one sentence."""
    best = m.verdicts[0]
    beyond = " The setting's own step sizes are outside of what it allows." * any(s.inside is False for s in m.steps)
    if best.status == HOLDS:
        return f"{best.theorem.name} applies: {best.theorem.about}{beyond}"
    if best.status == UNKNOWN:
        may = f"{best.theorem.name} may apply; nothing contradicts it at the points measured."
        return f"{may} {best.theorem.about}{beyond}"
    return f"No theorem says anything about this. The nearest is {best.theorem.name}."


def _method(m: Method) -> str:
    e, best = m.experiment, m.verdicts[0]
    lines = [_wrapped(f"{m.name}: {setting_words(e)}", ""), _wrapped(headline(m), "  ")]
    lines += [_wrapped(f"{status}: {words}", "    ") for status in (FAILS, UNKNOWN) for words in best.because(status)]
    lines += [_wrapped(words, "  ") for words in other_words(m)]
    lines += ["", _indented(columns(step_rows(m.steps)))]
    if m.simulated is not None:
        lines += ["", _simulated(m.simulated)]
    return "\n".join(lines)


def other_words(m: Method) -> list[str]:
    """The theorems after the first one; what fails there, too, is not repeated."""
    best, same = m.verdicts[0].because(FAILS), dict[str, list[str]]()
    for v in m.verdicts[1:]:
        more = [words for words in v.because(FAILS) if words not in best]
        if v.status != FAILS:
            words = f"{v.words}."
        elif more:
            words = (
                f"says nothing {'either' if best else 'here'}: {more[0]}{f' ({len(more) - 1} more)' * (len(more) > 1)}"
            )
        else:
            words = "says nothing for the same reasons."
        same.setdefault(words, []).append(v.theorem.name)
    return [f"{_listed(names)} {words}" for words, names in same.items()]


def _listed(names: Sequence[str]) -> str:
    """Names of theorems; the method is said once."""
    method = names[0].partition(", ")[0]
    return ", ".join([names[0], *(name.removeprefix(f"{method}, ") for name in names[1:])]) + ":"


def step_rows(steps: Sequence[StepSize]) -> list[tuple[str, str, str, str, str]]:
    """The table of step sizes."""
    rows = [("step size", "allowed", "recommended", "setting", "")]
    for s in steps:
        good = "none" if s.recommended is None else number(s.recommended)
        rows.append((s.name, allowed_words(s), good, "" if s.own is None else number(s.own), s.words))
    return rows


def allowed_words(s: StepSize) -> str:
    """The range of a step size."""
    low, high = s.allowed
    if s.allowed == FREE:
        return ""
    if math.isnan(low) or math.isnan(high):
        return "unknown"
    if low > high:
        return "none"
    if low == high:
        return number(low)
    if math.isinf(high):
        return "any" if low <= 0 else f"from {number(low)}"
    return f"up to {number(high)}" if low <= 0 else f"{number(low)} to {number(high)}"


def left_words(s: Simulated) -> str:
    """What the curves are."""
    return f"{s.verdict.theorem.left.text}, after T rounds"


def bound_words(s: Simulated) -> str:
    """Whether the bound is one."""
    if s.verdict.status == HOLDS:
        return "bound"
    return "bound, if it applies" if s.promised else "bound's formula"


def nothing_promised(s: Simulated) -> str:
    """Why the bound is none, also with the theorem's steps."""
    why = " ".join(check.reason for check in s.verdict.checks.values() if check.status == FAILS)
    return f"The bound's formula promises nothing, also with the theorem's steps: {why}"


def _simulated(s: Simulated) -> str:
    lines = []
    if s.curves:
        lines += [_wrapped(f"{left_words(s)}:", "  "), _indented(columns(curve_rows(s)))]
    if not s.promised and any(curve.label == "bound" for curve in s.curves):
        lines.append(_wrapped(nothing_promised(s), "  "))
    return "\n".join([*lines, *(_wrapped(note, "  ") for note in s.notes)])


def curve_rows(s: Simulated) -> list[tuple[str, ...]]:
    """The curves at a few rounds, and as lines of bars; the bound has a scale of its own."""
    longest = max(int(curve.rounds[-1]) for curve in s.curves)
    shown = np.unique(np.round(np.geomspace(1, longest, 4)).astype(int))
    runs = np.concatenate([np.array([]), *(curve.values for curve in s.curves if curve.label != "bound")])
    rows = [("", *(f"T = {t}" for t in shown), f"T = 1 to {longest}")]
    for curve in s.curves:
        at = dict(zip(curve.rounds.tolist(), curve.values.tolist(), strict=True))
        label = bound_words(s) if curve.label == "bound" else curve.label
        scale = curve.values if curve.label == "bound" else runs
        rows.append((label, *(number(at[t]) if t in at else "" for t in shown.tolist()), bars(curve, scale)))
    return rows


def bars(curve: Curve, values: np.ndarray) -> str:
    """A character for each round, whose height is the logarithm of the value among all `values`."""
    good = np.log(values[np.isfinite(values) & (values > 0)])
    low, high = (good.min(), good.max()) if good.size else (0.0, 1.0)
    low = min(low, high - math.log(2))  # small changes are not blown up
    made = []
    for v in curve.values:
        if not math.isfinite(v):
            made.append("?" if math.isnan(v) else "^")
            continue
        share = (math.log(v) - low) / (high - low) if v > 0 and high > low else 0.0
        made.append(BARS[min(int(share * len(BARS)), len(BARS) - 1)])
    every = max(1, -(-len(made) // 40))
    return "".join(made[::every])


def _wrapped(words: str, indent: str) -> str:
    return textwrap.fill(words, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ")


def _indented(block: str) -> str:
    return textwrap.indent(block, "  ")


def plain(d: Diagnosis) -> dict[str, Any]:
    """The diagnosis as plain data for JSON, in which what is unknown or infinite is null or text."""
    c = d.constants
    return {
        "task": d.task,
        "seed": d.seed,
        "clients": c.clients,
        "parameters": c.dimension,
        "constants": {
            name: {
                "value": _json(getattr(c, name).value),
                "error": _json(getattr(c, name).error),
                "for all w": name in c.everywhere,
            }
            for name in MEANINGS
        },
        "notes": list(c.notes),
        "notes on runs": list(d.notes),
        "methods": [_plain_method(m) for m in d.methods],
        "without theorems": list(d.silent),
    }


def _plain_method(m: Method) -> dict[str, Any]:
    found: dict[str, Any] = {
        "method": m.name,
        "algorithm": brief(m.experiment.algorithm),
        "solver": brief(m.experiment.solver),
        "cohort": brief(m.experiment.cohort),
        "words": headline(m),
        "theorems": [
            {
                "name": v.name,
                "theorem": v.theorem.name,
                "citation": v.theorem.citation,
                "reading": v.theorem.reading,
                "status": v.status,
                "assumptions": [
                    {"assumption": sentence, "status": check.status, "reason": check.reason}
                    for sentence, check in v.checks.items()
                ],
            }
            for v in m.verdicts
        ],
        "steps": [
            {
                "name": s.name,
                "allowed": [_json(s.allowed.low), _json(s.allowed.high)],
                "recommended": _json(s.recommended),
                "own": _json(s.own),
                "inside": s.inside,
                "factor": _json(s.factor),
            }
            for s in m.steps
        ],
    }
    if m.simulated is not None:
        s = m.simulated
        found["simulated"] = {
            "theorem": s.verdict.name,
            "quantity": s.verdict.theorem.left.text,
            "status": s.verdict.status,
            "seeds": 1,
            "curves": {
                curve.label: {"rounds": curve.rounds.tolist(), "values": [_json(v) for v in curve.values]}
                for curve in s.curves
            },
            "notes": list(s.notes),
        }
    return found


def _json(x: float | None) -> float | str | None:
    if x is None or math.isnan(x):
        return None
    return float(x) if math.isfinite(x) else ("infinity" if x > 0 else "-infinity")
