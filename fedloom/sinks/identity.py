"""The name by which a run is known to libraries that keep many runs, the same when the run is resumed."""

import pathlib
import uuid

from fedloom.experiments.files import write_whole


def identity(directory: pathlib.Path | None) -> str:
    """Drawn once for a directory and kept in it: a path is not enough, for another run may come to stand there."""
    if directory is None:
        return uuid.uuid4().hex
    path = directory / "identity"
    if not path.exists():
        write_whole(path, uuid.uuid4().hex.encode())
    return path.read_text()
