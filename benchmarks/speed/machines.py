"""Figures of several machines side by side, in benchmarks/speed.md.

python -m benchmarks.speed.machines [BENCH.json ...]

A file that `make bench-peers` wrote becomes the row of its machine in machines.json, in the place of an earlier one of
the same processor; then the tables in speed.md are written anew from all rows.
"""

import json
import pathlib
import re
import sys
from typing import Any

from benchmarks.speed.ratios import Ratio, best_of, digits
from benchmarks.speed.workloads import WORKLOADS

ROWS = pathlib.Path(__file__).with_name("machines.json")
PAGE = pathlib.Path(__file__).parents[1] / "speed.md"
MARKS = ("<!-- Written by `python -m benchmarks.speed.machines`. -->", "<!-- Up to here. -->")
WANTED = dict(zip(WORKLOADS, (10, 20, 2, 1.4, 1.2, 1.4), strict=True))  # the best peer / FedLoom
PAIRED, ONE_RUN = "paired", "medians of one run"  # methods; the second one is older, without pairs and intervals
KEPT = ("median", "min", "cpu", "ratio", "ratio of minima", "failed")  # of each system


def row(results: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a file that the benchmark wrote."""
    workloads = {}
    versions: dict[str, str] = {}
    for name, found in results["workloads"].items():
        ours = found["systems"]["FedLoom"]
        for said in found["systems"].values():
            versions = said.get("versions", {}) | versions  # FedLoom is the first: its JAX, not that of a peer
        workloads[name] = {
            "plan": ours["plan"],
            "matmul": round(ours["operations"] / ours["median"] / ours["matmul rate"], 3),
            "systems": {
                system: {key: _short(said[key]) for key in KEPT if key in said}
                for system, said in found["systems"].items()
            },
            **{key: found[key] for key in ("alternations", "repeated", "disturbed")},
        }
    versions.pop("python", None)
    machine = {key: results["machine"][key] for key in ("processor", "cores")}
    return machine | {"date": results["date"][:10], "method": PAIRED, "versions": versions, "workloads": workloads}


def _short(value: Any) -> Any:
    """Four digits, and of a failure its first line."""
    if isinstance(value, dict):
        return {key: _short(x) for key, x in value.items()}
    return value.splitlines()[0] if isinstance(value, str) else float(f"{value:.4g}")


def with_row(rows: list[dict[str, Any]], new: dict[str, Any]) -> list[dict[str, Any]]:
    return [r for r in rows if _identity(r) != _identity(new)] + [new]


def _identity(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["processor"], row["cores"], row["method"]


def tables(rows: list[dict[str, Any]]) -> str:
    """The best peer / FedLoom on all machines, then all systems of each machine."""
    heads = [f"{_machine(r)}, {r['method']}" for r in rows]
    lines = [*_heads("workload", "wanted", *heads)]
    for name in WORKLOADS:
        cells = [_best(r["workloads"][name]) if name in r["workloads"] else "" for r in rows]
        lines.append(_line(name, f"{WANTED[name]:g}", *cells))
    for r in rows:
        if any("systems" in found for found in r["workloads"].values()):
            lines += ["", *_details(r)]
    return "\n".join(lines) + "\n"


def _machine(row: dict[str, Any]) -> str:
    return f"{row['processor']}, {row['cores']} cores"


def _best(found: dict[str, Any]) -> str:
    if "best" in found:
        return digits(found["best"])
    best = best_of(found["systems"])
    return "" if best is None else f"**{Ratio(**found['systems'][best]['ratio'])}** {best}"


def _details(row: dict[str, Any]) -> list[str]:
    """A table of milliseconds for the older method; else of ratios, with milliseconds for FedLoom."""
    versions = ", ".join(f"{name} {version}" for name, version in row["versions"].items())
    names = list(dict.fromkeys(s for found in row["workloads"].values() for s in found["systems"]))
    paired = row["method"] == PAIRED
    what = "ms a round: median (minimum; CPU); others: times as long as FedLoom" if paired else "ms a round, medians"
    lines = [f"**{_machine(row)}**, {row['date']}, {row['method']}; {what}. Versions: {versions}.", ""]
    lines += _heads("workload", "plan", "matmul", *names, *(["alternations"] if paired else []))
    for name, found in row["workloads"].items():
        cells = [_cell(found["systems"].get(system, {}), paired) for system in names]
        more = [f"{found['alternations']}{_trouble(found)}"] if paired else []
        lines.append(_line(name, found["plan"], f"{found['matmul']:.0%}", *cells, *more))
    return lines


def _cell(r: dict[str, Any], paired: bool) -> str:
    if "ratio" in r:
        return str(Ratio(**r["ratio"]))
    if "median" not in r:
        return "failed" if "failed" in r else ""
    if not paired:
        return digits(r["median"] * 1e3)
    return f"{digits(r['median'] * 1e3)} ({digits(r['min'] * 1e3)}; {digits(r['cpu'] * 1e3)})"


def _trouble(found: dict[str, Any]) -> str:
    return f", {found['disturbed']} blocks disturbed by others" if found["disturbed"] else ""


def _heads(*cells: str) -> list[str]:
    return [_line(*cells), _line(*["---"] * len(cells))]


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def page(text: str, rows: list[dict[str, Any]]) -> str:
    """The page with its tables written anew."""
    before, after = (re.escape(mark) for mark in MARKS)
    written = f"{MARKS[0]}\n\n{tables(rows)}\n{MARKS[1]}"
    new, count = re.subn(f"{before}.*{after}", lambda _: written, text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{PAGE} must have the two marks of its tables once.")
    return new


def main() -> None:
    rows = json.loads(ROWS.read_text())
    for file in sys.argv[1:]:
        rows = with_row(rows, row(json.loads(pathlib.Path(file).read_text())))
    ROWS.write_text(json.dumps(rows, indent=1) + "\n")
    PAGE.write_text(page(PAGE.read_text(), rows))


if __name__ == "__main__":
    main()
