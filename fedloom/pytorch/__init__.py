"""PyTorch: its modules as functions of a flat vector, its losses, and its training loops.

All files in here but this one import PyTorch, and are imported when they are used.
"""

import importlib.util


def check_installed() -> None:
    """Raise a sentence if PyTorch is missing."""
    if importlib.util.find_spec("torch") is None:
        raise ImportError("torch is not installed; run: pip install 'fedloom[torch]'")
