"""Weights & Biases: a W&B run for each run, in the project "fedloom". WANDB_MODE=offline needs no account."""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

import wandb

from fedloom.sinks.identity import identity


def check_usable() -> None:
    """Raise if the user is not logged in; on a terminal, W&B asks for a login."""
    if wandb.setup().settings.mode == "online":
        wandb.login(verify=False)


class Writer:
    """A W&B run, separate from any other that is active."""

    def __init__(self, run: str, settings: Mapping[str, Any], directory: pathlib.Path | None):
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "fedloom",
            id=identity(directory),
            resume="allow",
            name=run,
            config=dict(settings),
            dir=os.environ.get("WANDB_DIR") or directory,
            reinit="create_new",
            settings=wandb.Settings(console="off"),  # the terminal shows progress, which is not worth recording
        )

    def numbers(self, round: int, numbers: Mapping[str, float]) -> None:
        self.run.log(dict(numbers), step=round)

    def diverged(self, round: int, words: str) -> None:
        self.run.summary["diverged"] = words

    def close(self, ending: str) -> None:
        self.run.finish(exit_code=0 if ending == "finished" else 1)
