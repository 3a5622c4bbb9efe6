"""MLflow: one MLflow run for each run, at MLFLOW_TRACKING_URI, in the experiment "fedloom"."""

import os
import pathlib
import re
import time
from collections.abc import Mapping
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from fedloom.sinks.identity import identity

TAG = "fedloom.identity"  # by which a resumed run is found
STATUS = {"finished": "FINISHED", "diverged": "FAILED", "stopped": "KILLED"}


def check_usable() -> None:
    """Raise if MLflow cannot open tracking locations of this kind; a server is not contacted yet."""
    MlflowClient()


class Writer:
    """An MLflow run, new or found again. It has a client of its own, so it does not disturb other active runs."""

    def __init__(self, run: str, settings: Mapping[str, Any], directory: pathlib.Path | None):
        self.client = MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "fedloom"
        found = self.client.get_experiment_by_name(name)
        experiment = self.client.create_experiment(name) if found is None else found.experiment_id
        known_as = identity(directory)
        begun = self.client.search_runs([experiment], f"tags.`{TAG}` = '{known_as}'")
        if begun:
            self.run = begun[0].info.run_id
            self.client.update_run(self.run, status="RUNNING")
            return
        self.run = self.client.create_run(experiment, run_name=run, tags={TAG: known_as}).info.run_id
        self.client.log_batch(self.run, params=[Param(key, str(value)) for key, value in settings.items()])

    def numbers(self, round: int, numbers: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        metrics = [Metric(allowed(name), value, now, round) for name, value in numbers.items()]
        self.client.log_batch(self.run, metrics)

    def diverged(self, round: int, words: str) -> None:
        self.client.set_tag(self.run, "diverged", f"Round {round}: {words}")

    def close(self, ending: str) -> None:
        self.client.set_terminated(self.run, STATUS[ending])


def allowed(name: str) -> str:
    """MLflow allows letters, digits, spaces and only these other characters in names."""
    return re.sub(r"[^\w./ -]", "_", name)
