"""Modules that need an extra which is not installed: their tests are skipped."""

import importlib
from types import ModuleType

import pytest

EXTRAS = {"torch": "torch", "torchax": "torch", "ray": "ray", "flwr": "flower"}  # what is imported, and the extra


def imported(name: str) -> ModuleType:
    """The module; the test is skipped if only an extra is missing."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        pytest.skip(f"{name} needs {error.name}: pip install 'fedloom[{extra}]'")
