"""Flower's own pace, where it is slower than need be: guarded, so that another version of Flower just keeps its own."""

import contextlib
import functools
import importlib
import inspect
import threading
import time
from typing import Any

# A message is announced before its parts are uploaded. Who asks in between waits: a second and more, by default.
SOON = {"initial_backoff": 0.02, "backoff_cap": 0.5, "max_tries_per_object": 5000}
SHORTEST, LONGEST = 0.2, 1.0  # between two looks for messages: a twentieth of the time since the last one


def hasten(pull_objects: Any) -> Any:
    """Flower's function that fetches the parts of a message, with shorter waits."""
    known = inspect.signature(pull_objects).parameters
    return functools.partial(pull_objects, **{name: value for name, value in SOON.items() if name in known})


def hasten_grid() -> None:
    """The same for the Grid of this process."""
    with contextlib.suppress(ImportError, AttributeError):
        grid: Any = importlib.import_module("flwr.superlink.grid.http_grid")
        if not isinstance(grid.pull_objects, functools.partial):
            grid.pull_objects = hasten(grid.pull_objects)


class Pace:
    """Stands where Flower's SuperNode has the module `time`: looks often while there is work, seldom when none is.

    Its sleeps also end when a reply is ready.
    """

    def __init__(self) -> None:
        self.ready, self.last = threading.Event(), time.monotonic()

    def sleep(self, seconds: float) -> None:
        idle = time.monotonic() - self.last
        self.ready.wait(min(seconds, max(SHORTEST, min(LONGEST, idle / 20))))
        self.ready.clear()

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)
