"""Files that survive a kill at any moment, because they are written whole or not at all."""

import contextlib
import os
import pathlib
from collections.abc import Iterator

try:
    import fcntl
except ImportError:  # Windows: there is no lock against a second process in the same directory
    fcntl = None  # type: ignore[assignment]

DRAFT = ".draft"  # the suffix of a file that is not complete


class Damaged(ValueError):
    """A file of a run that cannot be used; the message names it. Other runs of the same study are not affected."""


@contextlib.contextmanager
def reading(path: pathlib.Path) -> Iterator[None]:
    """A file of a run that cannot be opened or read is damaged."""
    try:
        yield
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error.strerror or error}.") from error


@contextlib.contextmanager
def naming(path: pathlib.Path) -> Iterator[None]:
    """Let an error of the machine, such as a full disk, say which file it is about."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def write_whole(path: pathlib.Path, content: bytes) -> None:
    """Put the content at `path` in one step: readers see the old file or the new one, even after a power cut."""
    draft = path.with_name(path.name + DRAFT)
    try:
        with naming(path), open(draft, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:  # a full disk: do not fill it further
        draft.unlink(missing_ok=True)
        raise
    os.replace(draft, path)
    _sync_directory(path.parent)


def _sync_directory(path: pathlib.Path) -> None:
    """Make new names in a directory survive a power cut. Windows cannot open directories and has no need to."""
    if os.name == "nt":
        return
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextlib.contextmanager
def only_one(directory: pathlib.Path) -> Iterator[None]:
    """Refuse if another process is using the directory. The lock ends with the process, however that ends."""
    with open(directory / "lock", "a") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(
                    f"Another process is running in {directory}; wait until it ends, or stop it."
                ) from None
        yield
