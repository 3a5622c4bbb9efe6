"""A module is reached by its own name: no function of the same name hides it."""

import importlib
import pkgutil
import types

import pytest


@pytest.mark.parametrize("package", ["metrics", "models", "reproductions", "tasks"])
def test_no_name_of_a_package_hides_one_of_its_modules(package):
    whole = importlib.import_module(f"fedloom.{package}")
    names = [module.name for module in pkgutil.iter_modules(whole.__path__)]
    assert names
    for name in names:
        importlib.import_module(f"fedloom.{package}.{name}")
        assert isinstance(getattr(whole, name), types.ModuleType), name
