"""What others see of a server while it runs: status.json, and metrics as Prometheus reads them."""

import json
import os
import pathlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from fedloom.experiments.files import DRAFT, write_whole

STATUS, METRICS = "status.json", "metrics.txt"
BEAT = 1.0  # seconds between two states of status.json


class Beat(threading.Thread):
    """Writes the status now and then, also while the server waits."""

    def __init__(self, directory: pathlib.Path, status: Callable[[], dict[str, Any]]):
        super().__init__(daemon=True)
        self.directory, self.status, self.over = directory, status, threading.Event()

    def __enter__(self) -> "Beat":
        self.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.over.set()
        self.join()
        self._write(ended=kind is None)  # a server that is told to stop, or fails, has not come to its end

    def run(self) -> None:
        while not self.over.wait(BEAT):
            self._write()

    def _write(self, ended: bool = False) -> None:
        try:
            status = {**self.status(), "ended": ended}
        except RuntimeError:  # a dictionary has changed meanwhile: the next beat will do
            return
        for name, text in ((STATUS, json.dumps(status)), (METRICS, exposition(status))):
            path = self.directory / name
            draft = path.with_name(name + DRAFT)
            draft.write_text(text)
            os.replace(draft, path)


def starting(directory: pathlib.Path) -> None:
    """Say that a server is there, which may wait long for its clients to say hello."""
    status = {"at": time.time(), "pid": os.getpid(), "ended": False, "starting": True}
    write_whole(directory / STATUS, json.dumps(status).encode())


def fail(directory: pathlib.Path, words: str) -> None:
    """Say in the status why the server cannot go on."""
    status = {"at": time.time(), "pid": os.getpid(), "ended": True, "failed": words}
    write_whole(directory / STATUS, json.dumps(status).encode())


def exposition(status: Mapping[str, Any]) -> str:
    """The status in the text format that Prometheus reads."""
    row = status.get("last row") or {}
    states = [client["state"] for client in status["clients"].values()]
    numbers: dict[str, float] = {
        "fedloom_up": float(not status.get("ended")),
        "fedloom_round": float(row.get("round", 0)),
        "fedloom_rounds": float(status["rounds"]),
        "fedloom_clients": float(len(states)),
        "fedloom_clients_ready": float(states.count("ready")),
        "fedloom_clients_left_out": float(states.count("left out")),
        "fedloom_server_life": float(status["life"]),
        "fedloom_travelled_down_bytes": float(status["travelled"][0]),
        "fedloom_travelled_up_bytes": float(status["travelled"][1]),
    }
    lines = [f"# TYPE {name} gauge\n{name} {value:g}" for name, value in numbers.items()]
    for name, value in row.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and name != "round":
            label = "".join(c if c.isalnum() else "_" for c in name)
            lines.append(f"# TYPE fedloom_log_{label} gauge\nfedloom_log_{label} {value:g}")
    return "\n".join(lines) + "\n"
