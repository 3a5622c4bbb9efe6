"""Flower's own pace, where it is slower than need be: guarded, so that another version of Flower just keeps its own."""

import contextlib
import functools
import importlib
import inspect
import sys
import threading
import time
from typing import Any

# A message is announced before its parts are uploaded. Who asks in between waits: a second and more, by default.
SOON = {"initial_backoff": 0.02, "backoff_cap": 0.5, "max_tries_per_object": 5000}
SHORTEST, LONGEST = 0.2, 1.0  # between two looks for messages: a twentieth of the time since the last one


QUIET = 10.0  # seconds without any part of a message after which its sender is taken for dead


def hasten(pull_objects: Any) -> Any:
    """Flower's function that fetches the parts of a message, with shorter waits: also for a sender that has died.

    Flower itself waits for an hour and more, in which the server would hear nobody else.
    """
    known = inspect.signature(pull_objects).parameters
    faster = functools.partial(pull_objects, **{name: value for name, value in SOON.items() if name in known})
    of = sys.modules[pull_objects.__module__]
    lost, not_yet = getattr(of, "ObjectPullError", None), getattr(of, "ObjectUnavailableError", None)
    if lost is None or not_yet is None:
        return faster

    def fetched(object_ids: Any, pull_object_fn: Any, **more: Any) -> Any:
        last = [time.monotonic()]

        def one(object_id: str) -> Any:
            try:
                content = pull_object_fn(object_id)
            except not_yet:
                if time.monotonic() - last[0] > QUIET:
                    raise lost(object_id, "its sender has fallen silent") from None
                raise
            last[0] = time.monotonic()
            return content

        return faster(object_ids, pull_object_fn=one, **more)

    fetched.hastened = True  # type: ignore[attr-defined]
    return fetched


def hasten_grid() -> None:
    """The same for the Grid of this process."""
    with contextlib.suppress(ImportError, AttributeError):
        grid: Any = importlib.import_module("flwr.superlink.grid.http_grid")
        if not hasattr(grid.pull_objects, "hastened"):
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
