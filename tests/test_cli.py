"""The command: what a person sees, and what it says about mistakes."""

import numpy as np
import pytest

import fedloom as fl
from fedloom import cli
from fedloom.data.catalogue import CATALOGUE


def run(capsys, *arguments):
    code = cli.main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("what", cli.LISTS)
def test_lists(capsys, what):
    code, out, _ = run(capsys, "list", what)
    assert code == 0
    lines = out.splitlines()
    assert len(lines) > 5
    assert all(line.strip() for line in lines)


def test_every_task_and_algorithm_is_listed(capsys):
    _, out, _ = run(capsys, "list", "tasks")
    assert [line.split()[0] for line in out.splitlines()[1:]] == list(fl.tasks.TASKS)
    _, out, _ = run(capsys, "list", "algorithms")
    assert [line.split()[0] for line in out.splitlines()[1:]] == list(fl.ALGORITHMS)


@pytest.mark.parametrize("name", fl.tasks.TASKS)
def test_every_task_can_be_shown(capsys, name):
    code, out, _ = run(capsys, "show", name)
    assert code == 0
    task = fl.tasks.TASKS[name]
    assert task.about in out
    for variant in task.settings:
        assert f"settings, {variant}:" in out


def test_settings_are_shown_with_their_numbers(capsys):
    _, out, _ = run(capsys, "show", "emnist-cr")
    assert "FedAdam(lr=0.003162, beta1=0.9, tau=0.0001, beta2=0.99)" in out
    assert "SGD(batch_size=20, epochs=1, lr=0.03162)" in out
    assert "uniform(m=10)" in out
    assert "fedadam 85.6" in out


def test_describe(capsys):
    code, out, _ = run(capsys, "describe", "synthetic-1-1", "--seed", "3")
    assert code == 0
    sizes = fl.load("synthetic-1-1", seed=3).data.split.sizes
    assert f"30 clients, {np.sum(sizes):,} training examples" in out
    assert "20 clients, functions of a vector of 10 numbers" in run(capsys, "describe", "quadratics")[1]


def test_mistakes_are_answered_with_a_sentence(capsys, monkeypatch, tmp_path):
    code, out, err = run(capsys, "show", "mnist-2n")
    assert (code, out) == (2, "")
    assert "There is no task 'mnist-2n'. Did you mean" in err
    monkeypatch.setenv("FEDLOOM_DATA", str(tmp_path))
    code, _, err = run(capsys, "describe", "mnist-2nn-iid")
    assert code == 2
    assert "fedloom download mnist" in err
    assert str(tmp_path) in err
    code, _, err = run(capsys, "download", "mnits")
    assert code == 2
    assert "mnist" in err


def test_download_counts_what_is_there(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLOOM_DATA", str(tmp_path))
    (tmp_path / "mnist").mkdir()
    (tmp_path / CATALOGUE["mnist"][0].path).write_bytes(b"")
    _, out, _ = run(capsys, "list", "downloads")
    assert "1 of 4 files here" in out
