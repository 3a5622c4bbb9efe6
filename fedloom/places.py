"""Where FedLoom keeps files on this machine."""

import os
import tempfile
from pathlib import Path


def cache_directory() -> Path:
    """What can be made again, such as plans and compiled programs: fedloom in the user's cache."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedloom"
    except RuntimeError:  # a user without a home directory, as in some containers
        return Path(tempfile.gettempdir()) / "fedloom"


def data_directory() -> Path:
    """Datasets: the directory named by the environment variable FEDLOOM_DATA, or else the cache directory."""
    named = os.environ.get("FEDLOOM_DATA")
    return Path(named).expanduser() if named else cache_directory()
