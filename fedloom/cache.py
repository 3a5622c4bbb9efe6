"""The directory for files that FedLoom can make or download again."""

import os
import pathlib
import tempfile


def cache_directory() -> pathlib.Path:
    """`fedloom` in the user's cache directory, or in the system's temporary one where the user has no home."""
    try:
        return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "fedloom"
    except RuntimeError:  # pathlib found no home directory
        return pathlib.Path(tempfile.gettempdir()) / "fedloom"
