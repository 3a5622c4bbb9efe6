"""A run's diagnosis for a terminal, and as plain data."""

import dataclasses
import math
import textwrap
from typing import Any

from fedloom.diagnosis.of_run import Along
from fedloom.diagnosis.task_text import WIDTH
from fedloom.diagnosis.verdict import number
from fedloom.experiments.text import columns
from fedloom.hyperparameters import brief

BAR = 24  # characters of the longest bar
HEADS = {
    "loss": "f",
    "gradient": "|grad f|",
    "B": "B",
    "sigma_g_mean": "sigma_g_mean",
    "sigma_g": "sigma_g",
    "L": "L",
}


def along_rows(a: Along) -> list[tuple[str, ...]]:
    """A row for each round that was measured, of what is known."""
    known = [name for name in HEADS if any(not math.isnan(getattr(p, name)) for p in a.points)]
    rows = [("round", *(HEADS[name] for name in known), "B, logarithmic")]
    logs = [math.log(p.B) if math.isfinite(p.B) else math.nan for p in a.points]
    top = max((x for x in logs if not math.isnan(x)), default=0.0) or 1.0
    for p, x in zip(a.points, logs, strict=True):
        bar = "" if math.isnan(x) else "█" * max(1, round(BAR * x / top))
        rows.append((str(p.round), *(number(getattr(p, name)) for name in known), bar))
    return rows


def along_text(a: Along) -> str:
    """The run's diagnosis for a terminal."""
    e = a.result.experiment
    lines = [f"{a.result.directory}: {brief(e.algorithm)}, {brief(e.solver)}, {brief(e.cohort)}, seed {e.seed}", ""]
    lines += [textwrap.indent(columns(along_rows(a)), "  "), "", textwrap.fill(a.words, WIDTH)]
    return "\n".join([*lines, *(textwrap.fill(note, WIDTH) for note in a.notes)])


def along_plain(a: Along) -> dict[str, Any]:
    """The run's diagnosis as plain data for JSON; what was not measured is null."""
    points = [
        {name: (v if math.isfinite(v) else None if math.isnan(v) else "infinity") for name, v in _fields(p).items()}
        for p in a.points
    ]
    return {
        "run": str(a.result.directory),
        "source": a.source,
        "points": points,
        "words": a.words,
        "notes": list(a.notes),
    }


def _fields(point: Any) -> dict[str, Any]:
    return dataclasses.asdict(point)
