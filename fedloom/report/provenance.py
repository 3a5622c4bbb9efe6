"""The end of the page: how to run each method again, and the machines that ran it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from fedloom.experiments.definition import Experiment
from fedloom.experiments.result import Result
from fedloom.experiments.study import Study
from fedloom.hyperparameters import brief
from fedloom.report.figures import ordered
from fedloom.report.series import by_name


def configurations(study: Study, tasks: Mapping[str, Sequence[Result]]) -> Iterable[str]:
    """Each method's configuration; of a sweep that of the best point, from which the others differ in a few fields."""
    first = next(iter(ordered(study, next(iter(tasks)))), "") if study.about.get("kind") == "sweep" else None
    if first is None:
        yield '<p class="quiet">Save one of these to a file to run it again: <code>fedloom run FILE</code>.</p>'
    else:
        yield (
            '<p class="quiet">This is the best point. All others differ from it only in the fields of the table of all '
            "points above; save it to a file, with other values if you like, to run it: "
            "<code>fedloom run FILE</code>.</p>"
        )
    for task, results in tasks.items():
        for name, seeds in by_name(r for r in results if first in (None, r.name)).items():
            texts: dict[str, list[Result]] = {}  # by everything but the seed
            for result in seeds:
                texts.setdefault(_config(result.experiment, seed=False), []).append(result)
            for same in texts.values():
                numbers = ", ".join(str(r.experiment.seed) for r in same)
                which = f"{task}, " if len(tasks) > 1 else ""
                yield (
                    f'<details><summary>{escape(name)} <span class="quiet">{escape(which)}seed{"s" * (len(same) > 1)} '
                    f'{numbers}</span></summary><div><button type="button" class="copy">copy</button>'
                    f"<pre>{escape(_config(same[0].experiment))}</pre></div></details>"
                )


def _config(experiment: Experiment, seed: bool = True) -> str:
    """The experiment as TOML, or as a description if its method is not registered."""
    try:
        text = experiment.to_toml()
    except ValueError:
        text = "\n".join(f"# {key} = {brief(value)}" for key, value in vars(experiment).items()) + "\n"
    return text if seed else "\n".join(line for line in text.split("\n") if not line.lstrip("# ").startswith("seed ="))


def machines(results: Sequence[Result]) -> Iterable[str]:
    """Each machine and set of versions, with the methods that ran there if there are several."""
    places: dict[str, tuple[Mapping[str, Any], dict[str, None]]] = {}
    for result in results:
        found = {**result.about.get("machine", {}), **result.about.get("versions", {})}
        if found:
            places.setdefault(json.dumps(found), (found, {}))[1][result.name] = None
    for facts, names in places.values():
        who = f'<p class="quiet">{escape(", ".join(names))}</p>' if len(places) > 1 else ""
        pairs = "".join(f"<dt>{escape(str(k))}</dt><dd>{escape(str(v))}</dd>" for k, v in facts.items())
        yield f"{who}<dl>{pairs}</dl>"
