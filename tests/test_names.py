"""A name means one thing: what is imported as a module is a module."""

import importlib
import pkgutil
import types

import pytest

import fedloom
from tests.extras import imported

MODULES = sorted(
    found.name for found in pkgutil.walk_packages(fedloom.__path__, "fedloom.") if not found.name.endswith("__main__")
)


@pytest.mark.parametrize("name", MODULES)
def test_no_public_name_hides_a_module(name):
    """`import a.b as m` takes the attribute b of a, which a function of the same name would replace."""
    imported(name)
    parent, _, own = name.rpartition(".")
    found = getattr(importlib.import_module(parent), own)
    assert isinstance(found, types.ModuleType)
    assert found.__name__ == name
