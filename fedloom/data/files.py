"""Files of the data directory: finding and opening them."""

import contextlib
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from fedloom.data.catalogue import CATALOGUE
from fedloom.places import data_directory


def locate(*names: str) -> Path:
    """The first of these that exists in the data directory.

    Args:
        names: paths relative to the data directory, of files or folders that serve equally well, for example
            "mnist/train-images-idx3-ubyte.gz" and "mnist/train-images-idx3-ubyte".
    """
    directory = data_directory()
    for name in names:
        if (directory / name).exists():
            return directory / name
    or_else = "".join(f" (or {name})" for name in names[1:])
    entry = next(
        (entry for entry, files in CATALOGUE.items() for f in files if {f.path, *f.unpacked()} & set(names)), None
    )
    if entry is None:
        advice = "Put the file there; `fedloom download` does not have it, and docs/data.md says what it is."
    else:
        advice = f"Run `fedloom download {entry}`, or put the file there yourself."
    raise FileNotFoundError(
        f"{names[0]}{or_else} is missing: there is no {directory / names[0]}. {advice} "
        "The environment variable FEDLOOM_DATA sets the directory in which data is looked for."
    )


@contextlib.contextmanager
def open_binary(path: Path) -> Iterator[BinaryIO]:
    """Open a file to read bytes, decompressing it if its name ends in .gz. A damaged file is a ValueError."""
    with path.open("rb") as raw:
        if path.suffix != ".gz":
            yield raw
            return
        try:
            with gzip.GzipFile(fileobj=raw) as file:
                yield cast(BinaryIO, file)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path} is not a complete gzip file ({error}); delete it and get it again.") from error
