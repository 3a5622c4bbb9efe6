"""docs/a-round.md cannot rot: every linked name is defined in the linked file, and every engine file is named."""

import pathlib
import re

import pytest

from tests.extras import imported

ROOT = pathlib.Path(__file__).parent.parent
TEXT = (ROOT / "docs/a-round.md").read_text()
LINKS = sorted(set(re.findall(r"\[`([\w.]+)`\]\(\.\./(fedloom/[\w/]+\.py)\)", TEXT)))
MOST_CONCEPTS = 12  # to follow a synchronous round


def test_the_page_links_names():
    assert len(LINKS) > 40


@pytest.mark.parametrize(("name", "path"), LINKS, ids=lambda value: value)
def test_a_name_is_defined_in_its_file(name, path):
    module = imported(path.removesuffix(".py").replace("/", "."))
    value = module
    for part in name.split("."):
        value = getattr(value, part)
    assert value.__module__ == module.__name__


def test_a_dozen_concepts_are_enough_for_a_synchronous_round():
    """The classes of the engines that the steps name are those of the table, and errors."""
    table = TEXT.split("## The dozen concepts")[1].split("\n## ")[0].split("\n\nAn asynchronous")[0]
    concepts = set(re.findall(r"^\| \[`(\w+)`\]", table, re.M))
    assert len(concepts) == MOST_CONCEPTS
    steps = TEXT.split("## A synchronous round")[1].split("\n## ")[0]
    named = set(re.findall(r"\[`([A-Z]\w+)`\]\(\.\./fedloom/engines", steps))
    assert named <= concepts | {"NonFiniteUpdate"}


def test_every_file_of_the_engines_is_named():
    """In the drawing, or as a file."""
    drawing = TEXT.split("```text")[1].split("```")[0]
    for path in (ROOT / "fedloom/engines").glob("[a-z]*.py"):
        assert re.search(rf"\b{path.stem}\b", drawing) or f"{path.stem}.py" in TEXT, path.stem


def test_the_oracle_imports_nothing_of_the_compiled_engines():
    shared = {
        "checks",
        "clock",
        "costs",
        "keys",
        "oracle",
        "plan",
        "processes",
        "records",
        "run",
        "sync_clock",
        "trees",
    }
    waiting, seen = {"oracle"}, set()
    while waiting:
        module = waiting.pop()
        seen.add(module)
        text = (ROOT / f"fedloom/engines/{module}.py").read_text()
        waiting |= set(re.findall(r"fedloom\.engines\.(\w+)", text)) - seen
    assert seen <= shared
    assert "fedloom.engines" in (ROOT / "fedloom/engines/oracle.py").read_text()


@pytest.mark.parametrize("module", ["asynchronous", "grid"])
def test_engines_do_not_import_one_another(module):
    assert "fedloom.engines.synchronous" not in (ROOT / f"fedloom/engines/{module}.py").read_text()
