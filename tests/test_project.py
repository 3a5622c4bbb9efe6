"""The project's own rules: documentation, layout, and the direction of imports."""

import ast
import dataclasses
import importlib.util
import inspect
import json
import os
import pathlib
import re
import subprocess
import sys

import jax
import pytest

import fedloom as fl
from fedloom import cohorts, metrics, models, regularizers, schedules, solvers, tasks
from fedloom.data.catalogue import CATALOGUE
from tests import conftest

ROOT = pathlib.Path(__file__).parent.parent
MODULES = sorted((ROOT / "fedloom").rglob("*.py"))


@pytest.mark.parametrize("name", fl.ALGORITHMS)
def test_an_algorithms_docstring_has_citation_pseudo_code_and_departures(name):
    doc = fl.ALGORITHMS[name].__doc__
    assert re.search(r"arXiv:\d{4}\.\d{5}", doc)
    assert "<-" in doc
    assert "Departures:" in doc


@pytest.mark.parametrize("path", sorted((ROOT / "fedloom/algorithms").glob("[a-z]*.py")), ids=lambda p: p.stem)
def test_no_algorithm_mentions_data_batches_or_weights(path):
    """Weights, batches and data are the business of the engine, the solver and the federation."""
    tree = ast.parse(path.read_text())
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    names |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    assert not names & {"data", "batch", "batch_size", "weight", "weights", "p", "examples", "objective"}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_can_be_read_in_one_sitting(path):
    assert len(path.read_text().splitlines()) <= 320


ALLOWED = {  # what each part may import, besides itself
    "places": set(),
    "version": set(),
    "hyperparameters": set(),
    "problem": set(),
    "loss": {"problem"},
    "algorithm": {"problem"},
    "client": {"problem"},
    "cohorts": {"hyperparameters"},
    "regularizers": {"hyperparameters", "problem"},
    "schedules": {"hyperparameters", "problem"},
    "algorithms": {"algorithm", "hyperparameters", "problem", "regularizers"},
    "pytorch": {"problem"},
    "solvers": {"client", "hyperparameters", "problem", "pytorch", "schedules"},
    "data": {"client", "hyperparameters", "loss", "places", "problem"},
    "metrics": {"client", "data", "loss", "native", "problem", "pytorch", "regularizers"},
    "native": {"places"},
    "models": {"loss", "metrics", "native", "problem", "pytorch"},
    "systems": {"hyperparameters"},
    "theory": {
        "algorithm",
        "algorithms",
        "client",
        "data",
        "loss",
        "metrics",
        "models",
        "native",
        "problem",
        "solvers",
        "tasks",
    },
    "diagnosis": {
        "algorithm",
        "algorithms",
        "client",
        "cohorts",
        "data",
        "engines",
        "evidence",
        "experiments",
        "hyperparameters",
        "native",
        "problem",
        "regularizers",
        "report",
        "schedules",
        "solvers",
        "systems",
        "tasks",
        "theory",
        "version",
    },
    "engines": {"algorithm", "client", "cohorts", "hyperparameters", "native", "places", "problem", "systems"},
    "cluster": {"algorithm", "client", "cohorts", "engines", "places", "problem", "systems", "version"},
    "tasks": {
        "algorithm",
        "algorithms",
        "client",
        "cohorts",
        "data",
        "hyperparameters",
        "loss",
        "metrics",
        "models",
        "places",
        "problem",
        "regularizers",
        "schedules",
        "solvers",
    },
    "tables": {"data", "hyperparameters", "metrics", "models", "tasks"},
    "experiments": {
        "algorithm",
        "algorithms",
        "client",
        "cluster",
        "cohorts",
        "data",
        "engines",
        "evidence",  # a study that grows until it is decided asks for the verdict
        "hyperparameters",
        "loss",
        "metrics",
        "models",
        "native",
        "problem",
        "report",  # a study shows itself in a notebook
        "solvers",
        "systems",
        "tables",
        "tasks",
        "version",
    },
    "sinks": {"experiments", "hyperparameters"},
    "federation": {
        "algorithm",
        "client",
        "cohorts",
        "data",
        "engines",
        "experiments",
        "hyperparameters",
        "loss",
        "metrics",
        "models",
        "places",
        "problem",
        "sinks",
        "tables",
        "tasks",
        "version",
    },
    "reproductions": {
        "algorithm",
        "algorithms",
        "cohorts",
        "data",
        "experiments",
        "hyperparameters",
        "metrics",
        "places",
        "schedules",
        "solvers",
        "systems",
        "tasks",
    },
    "evidence": {"experiments", "hyperparameters", "tasks"},
    "report": {"evidence", "experiments", "hyperparameters", "reproductions", "version"},
}


def _own(module):
    return module.split(".")[0] == "fedloom"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path):
    part = path.relative_to(ROOT / "fedloom").parts[0].removesuffix(".py")
    if part not in ALLOWED:
        pytest.skip(f"{part} may import anything")
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {[*alias.name.split("."), "fedloom"][1] for alias in node.names if _own(alias.name)}
        elif isinstance(node, ast.ImportFrom) and node.module == "fedloom":
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and _own(node.module):
            imported.add(node.module.split(".")[1])
    assert imported - {part} <= ALLOWED[part]


def documented():
    for module in (cohorts, metrics, models, regularizers, schedules, solvers, tasks, fl):
        for name, value in vars(module).items():
            if inspect.isclass(value) and value.__module__.startswith("fedloom"):
                yield pytest.param(value, id=f"{module.__name__}.{name}")


@pytest.mark.parametrize("value", list(documented()))
def test_public_classes_have_a_docstring(value):
    assert value.__doc__
    assert not value.__doc__.startswith(value.__name__ + "(")  # what dataclass writes where nobody did


@pytest.mark.parametrize("value", [*fl.ALGORITHMS.values(), *solvers.SOLVERS.values()], ids=lambda v: v.__name__)
def test_every_hyperparameter_has_a_domain_and_a_line_of_help(value):
    for field in dataclasses.fields(value):
        assert field.metadata["doc"], field.name
        assert field.metadata["domain"].words, field.name


def test_readme_commands_exist():
    readme, makefile = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"^make (\w+)", readme, re.MULTILINE)):
        assert f"\n{target}:" in makefile


def run(*command):
    """Run with the cache of compiled programs that the tests use."""
    cache = {name.upper(): str(getattr(jax.config, name)) for name in conftest.CACHE}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | cache)


def python_blocks(path):
    return re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)


DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def programs(path):
    """The blocks of a document are one program; those of the README that use PyTorch are another."""
    blocks = python_blocks(path)
    of_torch = [block for block in blocks if "import torch" in block]
    if of_torch and path.name != "README.md":
        return [], blocks
    return [block for block in blocks if block not in of_torch], of_torch


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
@pytest.mark.parametrize("torch", [False, True], ids=["", "torch"])
def test_documents_run(path, torch):
    source = "\n".join(programs(path)[torch])
    if not source:
        pytest.skip("no such code")
    if torch:
        pytest.importorskip("torch", reason="needs PyTorch")
    done = run(sys.executable, "-c", source)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_example_of_ones_own_task_can_be_compared(tmp_path):
    command = [
        sys.executable,
        "-m",
        "fedloom.cli",
        "compare",
        "examples/own_task.py:task",
        "--rounds",
        "3",
        "--seeds",
        "1",
    ]
    done = run(*command, "--out", str(tmp_path / "study"))
    assert done.returncode == 0, done.stderr[-2000:]
    assert {line.split()[0] for line in done.stdout.splitlines() if line} >= {"fedavg", "scaffold", "feddyn"}
    assert (tmp_path / "study/report.html").exists()


def test_the_example_of_ones_own_method_is_checked_and_compared(tmp_path):
    """As its docstring and docs/own.md say."""
    example = "examples/own_method.py:Mine"
    done = run(sys.executable, "-m", "fedloom.cli", "check", example)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "passed"
    command = [sys.executable, "-m", "fedloom.cli", "compare", "digits", "--algorithms", f"fedavg,{example}"]
    done = run(*command, "--rounds", "3", "--seeds", "1", "--out", str(tmp_path / "study"))
    assert done.returncode == 0, done.stderr[-2000:]
    assert {line.split()[0] for line in done.stdout.splitlines() if line} >= {"fedavg", "Mine"}
    assert (tmp_path / "study/Mine/seed-0/log.jsonl").exists()


def test_the_example_of_a_torch_module_can_be_compared(tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'fedloom[torch]'")
    command = [sys.executable, "-m", "fedloom.cli", "compare", "examples/torch_cnn.py:task", "--rounds", "2"]
    done = run(*command, "--algorithms", "fedavg,scaffold", "--seeds", "1", "--out", str(tmp_path / "study"))
    assert done.returncode == 0, done.stderr[-2000:]
    assert {line.split()[0] for line in done.stdout.splitlines() if line} >= {"fedavg", "scaffold"}
    about = json.loads((tmp_path / "study/scaffold/seed-0/about.json").read_text())
    assert about["how"] == "PyTorch by callbacks"


@pytest.mark.parametrize("page", ["algorithms", "reproductions", "tasks"])
def test_a_page_made_from_a_registry_is_up_to_date(page):
    spec = importlib.util.spec_from_file_location(page, ROOT / f"docs/{page}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / f"docs/{page}.md").read_text() == module.page(), "run make docs"


def test_the_table_of_data_files_has_every_name():
    """docs/data.md says where each thing that a task needs is looked for."""
    table = (ROOT / "docs/data.md").read_text()
    needed = {name for task in fl.tasks.TASKS.values() for name in task.needs}
    for name in needed | CATALOGUE.keys() - {"fed_emnist_digitsonly"}:
        assert f"`{name}`" in table, name


WRITTEN = ["README.md", "CONTRIBUTING.md", "docs/index.md", "docs/data.md", "docs/models.md"]


@pytest.mark.parametrize("page", WRITTEN)
def test_no_page_counts_what_a_registry_has(page):
    """Such a number is wrong as soon as somebody adds one."""
    counted = r"\b\d+ (?:of the papers' |named )?(?:algorithms|methods|solvers|splits|tasks|models|experiments)\b"
    assert not re.findall(counted, (ROOT / page).read_text())


def test_contributing_names_what_exists():
    """Files exist, and what is said to be in a file is there."""
    text = re.sub(r"```.*?```", "", (ROOT / "CONTRIBUTING.md").read_text(), flags=re.DOTALL)
    paths = [path for path in re.findall(r"`([\w./]+)`", text) if "/" in path and not path.endswith("/mine.py")]
    assert [path for path in paths if not (ROOT / path).exists() and path != "site/"] == []
    for name, path in re.findall(r"`(\w+)`\s+in\s+`([\w./]+\.py)`", text):
        assert re.search(rf"^{name}\b", (ROOT / path).read_text(), re.MULTILINE), (name, path)
    for code, name in re.findall(r"in `([\w./]+\.py)` \| `(\w+)`, there", text):
        assert re.search(rf"^{name}\b", (ROOT / code).read_text(), re.MULTILINE), (name, code)


def test_every_split_is_in_the_documentation():
    page = (ROOT / "docs/data.md").read_text()
    for name in fl.splits.SPLITS:
        assert f"`{name}`" in page, name
