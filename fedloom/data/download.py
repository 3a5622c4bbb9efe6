"""Downloading the public files of the catalogue into the data directory, whole, checked and never over another file."""

import hashlib
import shutil
import sys
import tarfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any

from fedloom.data.catalogue import CATALOGUE, File
from fedloom.places import data_directory

_TIMEOUT = 60.0  # seconds without a byte
_CHUNK = 1 << 20


def fetch(name: str, directory: str | Path | None = None, progress: bool = True) -> list[Path]:
    """Get the files of one entry of the catalogue, unless they are there, and return where they are.

    A file is downloaded beside its place as <file>.part, resumed from there after an interruption, and moved
    into place only when its checksum is right. Archives are checked, unpacked as far as needed, and kept.

    Args:
        name: a name in the catalogue, for example "mnist".
        directory: where to put them, if not in the data directory.
        progress: whether to report progress on stderr.
    """
    if name not in CATALOGUE:
        raise ValueError(f"There is no download {name!r}; choose one of {', '.join(sorted(CATALOGUE))}.")
    directory = data_directory() if directory is None else Path(directory)
    paths = []
    for file in CATALOGUE[name]:
        unpacked = [directory / path for path in file.unpacked()]
        if not unpacked or not all(path.exists() for path in unpacked):
            _get(file, directory / file.path, progress)
        if unpacked:
            _unpack(directory / file.path, file.contents)
        paths += unpacked or [directory / file.path]
    return paths


def _get(file: File, path: Path, progress: bool) -> None:
    """Put a file into place."""
    if path.exists():
        found = _digest(path, file.digest)
        if found != file.digest:
            raise ValueError(
                f"{path} already exists, but is not the file that {file.url} should be: its checksum is "
                f"{found}, not {file.digest}. It was left as it is; move it away to download the file."
            )
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    try:
        _transfer(file, part, progress)
    except (OSError, HTTPException) as error:
        raise ConnectionError(
            f"{file.url} could not be downloaded: {error}. Try again later (what has arrived is kept), or get the file "
            f"in another way and put it at {path}."
        ) from error
    found = _digest(part, file.digest)
    if found != file.digest:
        part.unlink()
        raise ValueError(
            f"{file.url} is not the expected file: its checksum is {found}, but should be {file.digest}. "
            f"Nothing was put at {path}; try again, or get the file in another way."
        )
    part.rename(path)


def _transfer(file: File, part: Path, progress: bool) -> None:
    """Download into `part`, after what is there already if the server can do that."""
    have = part.stat().st_size if part.exists() else 0
    if have and have == file.size:
        return  # the last run ended between the last byte and the check
    request = urllib.request.Request(file.url, headers={"User-Agent": "fedloom"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            if have and error.code == 416:
                return  # there is nothing after what we have: the checksum will decide
            raise
    with response:
        resumed = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        start = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length is not None else file.size
        with part.open("ab" if resumed else "wb") as out, _shown(file.url, start, total, progress) as show:
            done = start
            while chunk := response.read(_CHUNK):
                out.write(chunk)
                done += len(chunk)
                show(done)
    if total is not None and done < total:
        raise ConnectionError(f"the connection ended after {done} of {total} bytes")


def _digest(path: Path, like: str) -> str:
    """The checksum of a file, by the algorithm of the checksum `like`."""
    algorithm = like.partition(":")[0]
    with path.open("rb") as file:
        return f"{algorithm}:{hashlib.file_digest(file, algorithm).hexdigest()}"


@contextmanager
def _shown(url: str, start: int, total: int | None, progress: bool) -> Iterator[Callable[[int], None]]:
    """On a terminal one line that counts megabytes; otherwise a line at the start and one at the end."""
    done = start
    bar = progress and sys.stderr.isatty()
    label = url.rpartition("/")[2] if bar else url  # a line that is too long cannot be written over

    def line() -> str:
        of = "" if total is None else f" of {total / 1e6:.1f} MB, {done / max(total, 1):.0%}"
        return f"{label}: {done / 1e6:.1f}{of or ' MB'}"

    def show(now: int) -> None:
        nonlocal done
        done = now
        if bar:
            print(f"\r{line()}", end="", file=sys.stderr, flush=True)

    if progress and not bar:
        print(f"{line()} ...", file=sys.stderr)
    try:
        yield show
    finally:
        if progress:
            print("" if bar else line(), file=sys.stderr)


def _unpack(archive: Path, names: tuple[str, ...]) -> None:
    """Take the files `names` out of an archive, and nothing else, into its folder. What is there stays."""
    wanted = {name for name in names if not (archive.parent / name).exists()}
    if not wanted:
        return
    try:
        for name, member in _members(archive, wanted):
            target = archive.parent / name
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(target.name + ".part")
            with part.open("wb") as out:
                shutil.copyfileobj(member, out, _CHUNK)
            part.rename(target)  # only whole files get their name
            wanted.remove(name)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{archive} cannot be unpacked ({error}); delete it and download it again.") from error
    if wanted:
        raise ValueError(f"{archive} has no file {sorted(wanted)[0]} in it.")


def _members(archive: Path, wanted: set[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """The regular files of these names: ours, so that nothing in an archive can name a place outside its folder."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as content:
            for name in set(wanted) & set(content.namelist()):
                with content.open(name) as member:
                    yield name, member
        return
    with tarfile.open(archive, "r|*") as tar:  # one pass through what may be many gigabytes
        for entry in tar:
            name = entry.name.removeprefix("./")
            if name in wanted and entry.isfile():
                extracted: Any = tar.extractfile(entry)
                yield name, extracted
