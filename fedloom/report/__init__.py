"""Reports: methods at equal cost, cost to the target, curves, differences, and one page that opens offline."""

import os
import pathlib
from collections.abc import Callable, Iterable
from functools import partial

from matplotlib.figure import Figure

from fedloom.evidence.targets import target as target
from fedloom.experiments.files import write_whole
from fedloom.experiments.study import Study
from fedloom.report import drawing, page, tables
from fedloom.report.clock import clock_text as clock_text
from fedloom.report.extras import extra_pictures, first_sections, last_sections
from fedloom.report.extras import sweep_text as sweep_text
from fedloom.report.figures import curves as curves
from fedloom.report.figures import split_picture as split_picture
from fedloom.report.forest import differences, forest_figure
from fedloom.report.heat_maps import heat_map as heat_map
from fedloom.report.heat_maps import heat_map_plotly as heat_map_plotly
from fedloom.report.picture import split_text as split_text
from fedloom.report.series import by_task, has_clock, metrics, slug
from fedloom.report.standings import rows as rows
from fedloom.report.tables import csv as csv
from fedloom.report.tables import latex as latex
from fedloom.report.tables import plain as plain
from fedloom.report.tables import text as text

REPORT = "report.html"


def write(study: Study, directory: str | os.PathLike[str], extra: Iterable[page.Extra] = ()) -> pathlib.Path:
    """Write the page, the table as CSV and LaTeX, and the figures as PNG and SVG. Return the path of the page.

    An earlier report in the directory is replaced; files that do not belong to a report are never overwritten.
    """
    path = pathlib.Path(directory)
    for name, content in make_room(study, path, extra).items():
        write_whole(path / name, content())
    return path / REPORT


def make_room(study: Study, path: pathlib.Path, extra: Iterable[page.Extra] = ()) -> dict[str, Callable[[], bytes]]:
    """Make the directory for a report, or say why that cannot be. Return what will be written, by file name."""
    if not study.results:
        raise ValueError("The study has no results to report.")
    files: dict[str, Callable[[], bytes]] = {
        # The page is written first: it marks the other files as FedLoom's.
        REPORT: lambda: page.page(study, [*first_sections(study), *extra], last_sections(study)).encode(),
        "table.csv": lambda: tables.csv(study).encode(),
        "table.tex": lambda: tables.latex(study).encode(),
    }
    for name, draw in (_pictures(study) | extra_pictures(study)).items():
        files |= {f"{name}.{kind}": partial(_drawn, draw, kind) for kind in ("png", "svg")}
    _refuse_to_overwrite(path, files)
    path.mkdir(parents=True, exist_ok=True)
    return files


def _pictures(study: Study) -> dict[str, Callable[[], Figure]]:
    """The figures of each task by file name: the target's metric, the training loss, and the split."""
    tasks = by_task(study)
    found: dict[str, Callable[[], Figure]] = {}
    for task, results in tasks.items():
        which = f"{slug(task)}-" if len(tasks) > 1 else ""
        known = metrics(results)
        for metric in dict.fromkeys((target(study, task).metric, "train loss")):
            if metric in known:
                found[f"curves-{which}{slug(metric)}"] = partial(curves, study, metric, task=task)
                if has_clock(results):
                    found[f"clock-{which}{slug(metric)}"] = partial(curves, study, metric, "clock", task)
        if shown := differences(study, task):
            found[f"forest-{which}".rstrip("-")] = partial(forest_figure, *shown)
        about = next((r.about for r in results if "sizes" in r.about), None)
        if about is not None:
            found[f"split-{which}".rstrip("-")] = partial(split_picture, about)
    return found


def _drawn(draw: Callable[[], Figure], kind: str) -> bytes:
    return drawing.content(draw(), kind)


def _refuse_to_overwrite(path: pathlib.Path, files: Iterable[str]) -> None:
    if (path / REPORT).is_file() and page.GENERATOR.encode() in (path / REPORT).read_bytes()[:5000]:
        return
    for name in files:
        if (path / name).exists():
            raise ValueError(
                f"{path / name} was not written by FedLoom and is kept; move it, or choose another directory."
            )
