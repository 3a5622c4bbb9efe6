"""The results of a study by task and by method, and how a method differs in kind from the others."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fedloom.experiments.result import Result
from fedloom.experiments.study import Study


def by_task(study: Study) -> dict[str, list[Result]]:
    """The results of each task, in the order of the study."""
    names = {_given(r): r.about["task"] for r in study.results if "task" in r.about}  # as runs that began noted them
    found: dict[str, list[Result]] = {}
    for result in study.results:
        given = _given(result)
        found.setdefault(names.get(given, given.rpartition(":")[2]), []).append(result)
    return found


def _given(result: Result) -> str:
    task = result.experiment.task
    return task if isinstance(task, str) else task.name


def by_name(results: Iterable[Result]) -> dict[str, list[Result]]:
    """The seeds of each method."""
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(result.name, []).append(result)
    return found


def metrics(results: Iterable[Result]) -> dict[str, bool]:
    """The metrics that any of the results has, and whether larger is better."""
    return {metric: result.larger_is_better(metric) for result in results for metric in result.metrics}


def has(result: Result, metric: str) -> bool:
    """Whether every evaluation of the result has the metric."""
    return bool(result.evaluated) and metric in result.metrics and all(metric in row for row in result.evaluated)


def labels(results: Sequence[Result]) -> dict[str, str]:
    """The names of methods as they are shown: one with another cohort, or with more exchanges in a round, says so."""
    seeds = by_name(results)
    clients, exchanges = ({name: f(own) for name, own in seeds.items()} for f in (_clients, _exchanges))
    usual_clients, usual_exchanges = _usual(clients), _usual(exchanges)
    found = {}
    for name, own in seeds.items():
        words = []
        among, taking_part = next((r.about.get("clients") for r in own), None), clients[name]
        if taking_part is not None and usual_clients is not None and abs(taking_part / usual_clients - 1) > 0.05:
            words.append(
                "everyone" if among is not None and taking_part > among - 0.5 else f"{taking_part:.3g} clients"
            )
        if exchanges[name] is not None and exchanges[name] != usual_exchanges:
            words.append(f"{exchanges[name]:.3g} exchanges")
        found[name] = f"{name} ({', '.join(words)})" if words else name
    return found


def _usual(values: Mapping[str, float | None]) -> float | None:
    """The value that most methods have."""
    known = Counter(round(v, 1) for v in values.values() if v is not None)
    return known.most_common(1)[0][0] if known else None


def _clients(seeds: Sequence[Result]) -> float | None:
    """Clients in an exchange, on average."""
    ends = [r.evaluated[-1] for r in seeds if r.evaluated]
    found = [row["messages"] / 2 / row["exchanges"] for row in ends if row["exchanges"]]
    return float(np.mean(found)) if found else None


def _exchanges(seeds: Sequence[Result]) -> float | None:
    """Exchanges in a round."""
    ends = [r.evaluated[-1] for r in seeds if r.evaluated]
    found = [row["exchanges"] / row["round"] for row in ends if row["round"]]
    return round(float(np.mean(found)), 1) if found else None
