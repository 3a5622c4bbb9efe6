"""The documentation site: everything public is in it, every page can be found, every link leads somewhere."""

import re
import tomllib
from collections.abc import Iterator

import pytest

import fedloom as fl
from docs import api, build
from docs.api_parts import PARTS
from docs.check_site import problems
from tests.test_project import ROOT

PICTURES = {place for place in build.places().values() if place.endswith((".png", ".svg"))}
PAGES = set(build.places().values()) - PICTURES
SOURCES = sorted(path for path in build.places() if path.endswith(".md"))


def test_every_public_name_is_documented_and_has_a_place():
    assert api.undocumented() == []


def test_a_name_without_docstring_is_found(monkeypatch):
    monkeypatch.setattr(fl.load, "__doc__", None)
    monkeypatch.setattr(fl.Round.send, "__doc__", None)
    assert api.undocumented() == ["fedloom.Round.send has no docstring", "fedloom.load has no docstring"]


def test_a_name_without_place_is_found(monkeypatch):
    monkeypatch.delitem(PARTS, "algorithms")
    found = api.undocumented()
    assert "fedloom.FedAvg is on no page" in found
    assert all("on no page" in sentence for sentence in found)


def in_nav() -> Iterator[str]:
    def leaves(entry: object) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        else:
            for child in entry.values() if isinstance(entry, dict) else entry:
                yield from leaves(child)

    yield from leaves(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"])


def test_every_page_is_in_the_navigation_once():
    made = {"gallery.md", "report.md", "api/index.md", *(f"api/{part}.md" for part in PARTS)}
    sources = {page for page in PAGES if page.startswith("source/")}  # reached from the pages that link to them
    assert sorted(in_nav()) == sorted((PAGES - sources) | made)


@pytest.mark.parametrize("source", SOURCES)
def test_links_lead_to_files_of_the_repository(source):
    """So that they work where the repository is read, too."""
    for link in build.links((ROOT / source).read_text()):
        assert (ROOT / build.target(source, link)).exists(), link


@pytest.mark.parametrize("source", [s for s in SOURCES if s != "README.md"])  # the site has a home page of its own
def test_links_lead_to_pages_of_the_site(source):
    for link in build.links(build.page(source)):
        assert build.target(build.places()[source], link) in PAGES | PICTURES, link


def test_signatures_and_fields_are_readable():
    pages = api.pages()
    assert "fedloom.FedDyn(alpha: float = 0.01, weighting: str = 'means')" in pages["algorithms.md"]
    assert re.search(r"\| `alpha` \| `0.01` \| a positive number \| .+ \|", pages["algorithms.md"])
    assert "[`simulate`](engines.md#fedloom.simulate)" in pages["engines.md"]
    assert not [line for text in pages.values() for line in text.splitlines() if " at 0x" in line]


def test_what_is_wrong_with_a_site_is_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<script src="https://cdn.example/x.js"></script><h2 id="there"></h2>'
        '<a href="b.html">b</a><a href="a.html#there">ok</a><a href="#gone">gone</a><a href="https://example.org">ok</a>'
    )
    assert problems(tmp_path) == [
        "a.html loads https://cdn.example/x.js from elsewhere.",
        "a.html links to b.html, which does not exist.",
        "a.html links to #gone, but that page has no such anchor.",
    ]
