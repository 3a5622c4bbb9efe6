"""The identifier of a run in libraries that keep many runs; it stays the same when the run is resumed."""

import pathlib
import uuid

from fedloom.experiments.files import write_whole


def identity(directory: pathlib.Path | None) -> str:
    """Drawn once for each directory and kept in it; the path would not do, because another run may use it later."""
    if directory is None:
        return uuid.uuid4().hex
    path = directory / "identity"
    if not path.exists():
        write_whole(path, uuid.uuid4().hex.encode())
    return path.read_text()
