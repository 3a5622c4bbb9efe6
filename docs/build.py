"""Builds the documentation site: `make docs`, or `python -m docs.build`.

The pages are gathered in build/docs: those of this directory, those that other directories have, the API reference,
and a gallery and a report of real runs. Zensical then makes site/ of them, and what it made is checked.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

from docs import api, gallery
from docs.check_site import problems

ROOT = pathlib.Path(__file__).parent.parent
BUILD, SITE = ROOT / "build/docs", ROOT / "site"

# Pages that are not in docs/, by their place in the site.
ELSEWHERE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/cluster.md": "benchmarks/cluster.md",
    "benchmarks/reproductions.md": "benchmarks/reproductions.md",
    "benchmarks/results.md": "benchmarks/results.md",
    "benchmarks/speed.md": "benchmarks/speed.md",
    "benchmarks/winners.md": "benchmarks/winners.md",
    "examples/hospitals.py": "hospitals.md",
    "examples/huggingface_folder.py": "huggingface_folder.md",
    "examples/own_method.py": "own_method.md",
    "examples/own_task.py": "own_task.md",
    "examples/torch_cnn.py": "torch_cnn.md",
    "examples/two_nodes.py": "two_nodes.md",
    "README.md": "index.md",  # for links only: the site has a home page of its own
}
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)((?:#[^)\s]*)?)(?=\))")


def places() -> dict[str, str]:
    """Where the files of the repository are in the site; a file of the library is there if a page links to it."""
    own = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*.png")]
    linked = {target(f"docs/{p.name}", link) for p in own if p.suffix == ".md" for link in links(p.read_text())}
    code = {path: f"source/{path.removesuffix('.py')}.md" for path in linked if path.startswith("fedloom/")}
    drawn = {
        f"docs/assets/papers/{p.name}": f"assets/papers/{p.name}" for p in (ROOT / "docs/assets/papers").glob("*.svg")
    }
    return {f"docs/{path.name}": path.name for path in own} | drawn | code | ELSEWHERE


def links(text: str) -> list[str]:
    """The relative links of a page, without those in code."""
    return [match[1] for match in LINK.finditer(re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL))]


def target(source: str, link: str) -> str:
    """The file of the repository that a link in the page `source` leads to."""
    return os.path.normpath(os.path.join(os.path.dirname(source), link))


def page(source: str) -> str:
    """A file of the repository as a page of the site, its links adapted."""
    where, text = places(), (ROOT / source).read_text()
    if source.endswith(".py"):
        return f"# {pathlib.Path(source).stem.replace('_', ' ').capitalize()}\n\n`{source}`:\n\n```python\n{text}```\n"

    def moved(match: re.Match[str]) -> str:
        found = target(source, match[1])
        if found not in where:
            raise SystemExit(
                f"{source} links to {match[1]}, which is no page of the site; see ELSEWHERE in docs/build.py."
            )
        return os.path.relpath(where[found], os.path.dirname(where[source]) or ".") + match[2]

    parts = re.split(r"(```.*?```)", text, flags=re.DOTALL)
    return "".join(part if part.startswith("```") else LINK.sub(moved, part) for part in parts)


def gather() -> None:
    """Write all pages into the build directory."""
    shutil.rmtree(BUILD, ignore_errors=True)
    pages = {place: page(source) for source, place in places().items() if source.endswith((".md", ".py"))}
    pages["index.md"] = page("docs/index.md")
    pages |= {f"api/{name}": text for name, text in api.pages().items()}
    pages |= gallery.pages(BUILD)
    for name, text in pages.items():
        path = BUILD / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for picture in (ROOT / "docs").glob("*.png"):
        shutil.copy(picture, BUILD)
    shutil.copytree(ROOT / "docs/assets", BUILD / "assets")


def main() -> None:
    gather()
    shutil.rmtree(SITE, ignore_errors=True)
    if subprocess.run([sys.executable, "-m", "zensical", "build", "--strict", "--clean"], cwd=ROOT).returncode:
        sys.exit("The site could not be built; see above.")
    if found := problems(SITE):
        sys.exit("The site was built, but it is not right:\n  " + "\n  ".join(found))
    print(f"documentation: {SITE / 'index.html'}")


if __name__ == "__main__":
    main()
