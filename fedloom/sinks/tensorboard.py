"""TensorBoard: event files in the run's directory, written with TensorBoard's own package alone."""

import pathlib
import re
import time
from collections.abc import Mapping
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter


def check_usable() -> None:
    """Nothing to check: the writer needs only the package."""


class Writer:
    """A file of events. A resumed run adds another, whose first event tells TensorBoard what it replaces."""

    def __init__(self, run: str, settings: Mapping[str, Any], directory: pathlib.Path | None):
        elsewhere = pathlib.Path("tensorboard", re.sub("[^A-Za-z0-9.=_,+/-]+", "-", run))
        self.settings = dict(settings)
        self.started = False
        self.events = EventFileWriter(str(elsewhere if directory is None else directory / "tensorboard"))

    def numbers(self, round: int, numbers: Mapping[str, float]) -> None:
        self._add(round, *(scalar_pb(name, value) for name, value in numbers.items()))

    def diverged(self, round: int, words: str) -> None:
        self._add(round, text_pb("diverged", words))

    def close(self, ending: str) -> None:
        self.events.close()

    def _add(self, round: int, *summaries: Any) -> None:
        if not self.started:  # makes TensorBoard ignore what older files have from this round on
            self.started = True
            start = SessionLog(status=SessionLog.START)
            self.events.add_event(Event(wall_time=time.time(), step=round, session_log=start))
            summaries = (hparams_pb(self.settings), *summaries)
        for summary in summaries:
            self.events.add_event(Event(wall_time=time.time(), step=round, summary=summary))
        self.events.flush()
