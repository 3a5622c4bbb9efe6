"""Hearing from Flower's SuperNode what it does, and bounding what it takes; for node.py, as a plain file."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any


def _ordinary(call: Callable[..., Any]) -> Callable[..., Any]:
    """What is called, with errors that Flower clears up after.

    Its RunNotRunningException is no Exception: of a server that died in the middle of a message it would keep the task
    for ever, and whoever takes that task waits for parts that never come.
    """

    def called(*args: Any, **more: Any) -> Any:
        try:
            return call(*args, **more)
        except (Exception, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            raise RuntimeError(f"The server has given up this message: {type(error).__name__}.") from error

    return called


def watched(internal: Any, tasks: Any, pace: Any, status: Any, limit: int, hasten: Any, say: Any) -> None:
    """Hear from Flower's SuperNode when it is connected and when a message has come, and bound what it takes."""
    if hasattr(internal, "time"):
        internal.time = pace
    if (pull := getattr(internal, "_pull_and_store_message", None)) is not None:
        tasks.pause = 2.0  # it is woken, and looks by itself only to be sure

        def pull_and_wake(*args: Any, **more: Any) -> Any:
            for name in ("pull_object", "confirm_message_received"):
                if name in more:
                    more[name] = _ordinary(more[name])
            with tasks.turn:
                found = pull(*args, **more)
            if found is not None:
                pace.last = time.monotonic()
                tasks.work.set()
            return found

        internal._pull_and_store_message = pull_and_wake
    if (objects := getattr(internal, "pull_objects", None)) is not None:
        objects = hasten(objects)

        def within_bounds(ids: Any, pull_object_fn: Callable[[str], bytes], **more: Any) -> Any:
            left = [2 * limit + 2**24]  # beyond the limit the shim refuses with a sentence; this saves the memory

            def one(object_id: str) -> bytes:
                content = pull_object_fn(object_id)
                left[0] -= len(content)
                if left[0] < 0:
                    raise ValueError(f"The message is far larger than the limit of {limit} bytes; it is dropped.")
                return content

            return objects(ids, pull_object_fn=one, **more)

        internal.pull_objects = within_bounds
    if (connect := getattr(internal, "http_request_response", None)) is not None:

        @contextlib.contextmanager
        def connected(*args: Any, **more: Any) -> Iterator[Any]:
            with connect(*args, **more) as connection:
                status.node = connection[0]
                status.write("connected")
                say(f"Connected as node {status.node}.")
                yield connection

        internal.http_request_response = connected
