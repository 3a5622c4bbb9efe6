"""The commands for what is one's own: check and show, and the options that take FILE.py:NAME."""

import pathlib
import re

import jax.numpy as jnp
import pytest

import fedloom as fl
from fedloom import cli
from fedloom.experiments import read
from fedloom.testing import check_algorithm
from tests import own
from tests.small import FEDERATION, W

EXAMPLE = pathlib.Path(__file__).parent.parent / "examples/own_method.py"


@pytest.fixture(autouse=True)
def files(tmp_path):
    own.put(tmp_path)


def said(capsys, line):
    code = cli.main(line.split())
    out, err = capsys.readouterr()
    return code, out, err


def test_check_says_what_the_battery_found(capsys):
    code, out, err = said(capsys, "check own.py:Mine --algorithm.lr 0.25")
    assert (code, err) == (0, "")
    first, _, *table, _, last = out.splitlines()
    assert (first, last) == ("Mine(lr=0.25)", "passed")
    found = check_algorithm(own.Mine(lr=0.25))
    assert [line.split("  ")[0] for line in table] == list(found)
    assert all(line.endswith(words) for line, words in zip(table, found.values(), strict=True))


def test_check_takes_registered_methods_and_nested_fields(capsys):
    code, out, _ = said(capsys, "check feddyn --algorithm.alpha 0.5")
    assert code == 0
    assert out.startswith("FedDyn(alpha=0.5)\n")
    code, out, err = said(capsys, "check feddr --algorithm.g l1 --algorithm.g.strength 0.125")
    assert (code, out) == (2, "")  # its optimum is another, with a regularizer
    assert "g=l1(strength=0.125)) with Exact() fails 'optimum': it ends " in err


def test_show_has_the_docstring_and_the_fields(capsys):
    code, out, _ = said(capsys, "show own.py:Mine")
    assert code == 0
    assert out.startswith("Mine: Heavy-ball momentum on the server.\n")
    assert ["lr", "0.5", "server", "step", "size", "a", "positive", "number"] in [
        line.split() for line in out.splitlines()
    ]
    assert said(capsys, "show own.py:Signs")[1].startswith("Signs: Steps along the signs")
    assert "clients in a round" in said(capsys, "show own.py:Pairs")[1]
    assert said(capsys, "show own.py:task")[1].startswith("ours: ")
    assert said(capsys, f"show {EXAMPLE}:Mine")[1].startswith("Mine: A method of one's own")  # of its file


def test_options_and_files_take_what_is_ones_own(tmp_path, capsys):
    options = (
        "--algorithm own.py:Mine --algorithm.lr 0.25 --solver own.py:Signs --solver.lr 0.0625 --cohort own.py:Pairs"
    )
    more = "--cohort.m 3 --model own.py:net --loss own.py:margin --metrics own.py:largest,mse_of.py:it"
    assert said(capsys, f"run own.py:task --rounds 2 {options} {more} --quiet --out a")[0] == 0
    (tmp_path / "e.toml").write_text(
        'task = "own.py:task"\nrounds = 2\nmodel = "own.py:net"\nloss = "own.py:margin"\n'
        'metrics = ["own.py:largest", "mse_of.py:it"]\nalgorithm = {name = "own.py:Mine", lr = 0.25}\n'
        'solver = {name = "own.py:Signs", lr = 0.0625}\ncohort = {name = "own.py:Pairs", m = 3}\n'
    )
    assert said(capsys, "run e.toml --quiet --out b")[0] == 0
    assert (tmp_path / "a/config.toml").read_text() == (tmp_path / "b/config.toml").read_text()
    assert (tmp_path / "a/log.jsonl").read_bytes() == (tmp_path / "b/log.jsonl").read_bytes()
    e = read(tmp_path / "a").experiment
    assert (e.algorithm.lr, e.solver.lr, e.cohort.m) == (0.25, 0.0625, 3)
    assert e.metrics == (f"{tmp_path}/own.py:largest", f"{tmp_path}/mse_of.py:it")


DOCS = EXAMPLE.parent.parent / "docs/own.md"
FEWER = {  # what makes each command of the page quick
    "show": "",
    "check": "",
    "compare": " --rounds 1 --seeds 1 --quiet --out compared",
    "run": " --rounds 1 --quiet --out run",
    "tune": " --rounds 2 --points 1 --seeds 1 --quiet --out tuned",
}


@pytest.mark.parametrize("line", re.findall(r"^fedloom (.*mine\.py.*?)(?:  #.*)?$", DOCS.read_text(), re.MULTILINE))
def test_the_commands_of_the_page_do_what_it_says(tmp_path, capsys, line):
    (tmp_path / "mine.py").write_text(re.search(r"```python\n(# mine.py\n.*?)```", DOCS.read_text(), re.DOTALL)[1])
    code, _, err = said(capsys, line.replace(" --rounds 50", "") + FEWER[line.split()[0]])
    assert (code, err) == (0, "")


def test_the_example_does_what_its_docstring_says():
    """Two rounds by hand: m and w as in the docstring, from the clients' updates."""
    from examples.own_method import Mine

    solver, lr, momentum = fl.GD(lr=0.1, steps=2), 0.7, 0.6
    records = fl.simulate(Mine(lr=lr, momentum=momentum), FEDERATION, solver, W, rounds=3)
    w, m = jnp.asarray(W), jnp.zeros(3)
    for record in records:
        mean = jnp.zeros(3)
        for k, p in enumerate(FEDERATION.weights):
            v = w
            for _ in range(2):
                v = v - 0.1 * FEDERATION.hessians[k] @ (v - FEDERATION.centers[k])
            mean = mean + p * (v - w)
        m = momentum * m + mean
        w = w + lr * (momentum * m + mean)
        assert jnp.allclose(record.w, w, rtol=0, atol=1e-13)
