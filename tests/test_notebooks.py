"""What notebooks show, and what functions accept as the command line does."""

import io
import re

import numpy as np
import pytest

import fedloom as fl
from fedloom.experiments import notebook
from fedloom.experiments.arguments import name_list, reporter, seed_list
from fedloom.experiments.progress import Lines


@pytest.fixture(scope="module")
def study():
    return fl.compare("digits", "fedavg, scaffold", seeds=2, rounds=4)


def test_names_and_numbers_of_seeds_are_accepted(study):
    assert [(r.name, r.experiment.seed) for r in study.results] == [
        ("fedavg", 0),
        ("fedavg", 1),
        ("scaffold", 0),
        ("scaffold", 1),
    ]


@pytest.mark.parametrize(
    ("given", "found"), [(3, [0, 1, 2]), ("3", [0, 1, 2]), ("4,7", [4, 7]), ([5], [5]), (range(2), [0, 1])]
)
def test_seeds(given, found):
    assert seed_list(given) == found


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (0, "at least 1, got 0"),
        ("x", "separated by commas; got 'x'"),
        ([1, 1], "lists 1 twice"),
        ([], "at least one seed"),
        (True, "a number of seeds or a list"),
        (2.0, "a number of seeds or a list"),
        (10**6, "at most 10,000"),
    ],
)
def test_wrong_seeds_are_sentences(given, words):
    with pytest.raises(ValueError, match=words):
        fl.compare("digits", "fedavg", seeds=given, rounds=1)


def test_names():
    assert name_list(" fedavg ,feddr,") == ["fedavg", "feddr"]
    assert name_list((fl.FedAvg(),)) == [fl.FedAvg()]


def test_a_study_shows_the_table_of_the_command_line(study):
    shown = study._repr_html_()
    text = fl.report.text(study)
    cells = re.findall(r"<td>(.*?)</td>", shown)
    assert len(shown) < 5000
    assert "<script" not in shown
    line = next(line for line in text.splitlines() if line.startswith("scaffold"))
    for cell in line.split("  "):
        if cell.strip():
            assert cell.strip().replace("+-", "±").replace("<=", "≤") in cells


def test_a_result_shows_its_last_metrics(study):
    shown, last = study.results[0]._repr_html_(), study.results[0].rows[-1]
    assert "fedavg on digits, seed 0" in shown
    assert f"<td>{last['test accuracy']:.4g}" in shown
    assert "round 4 of 4" in shown


def test_names_are_escaped():
    result = fl.run(fl.experiment("digits", "fedavg", rounds=1), name="<b>&")
    assert "&lt;b&gt;&amp; on digits" in result._repr_html_()


def test_a_result_that_diverged_says_so():
    result = fl.run(fl.experiment("digits", "fedavg", rounds=3, **{"solver.lr": 1e9}))
    assert "diverged, round" in result._repr_html_()


def test_frames(study):
    frame = study.to_pandas()
    assert len(frame) == sum(len(r.rows) for r in study.results)
    one = frame[(frame["name"] == "scaffold") & (frame["seed"] == 1)]
    np.testing.assert_array_equal(one["test accuracy"], study.results[3].column("test accuracy"))
    np.testing.assert_array_equal(study.results[3].to_pandas()["bytes up"], one["bytes up"])
    assert all(kind.kind in "ifOU" or str(kind).startswith("str") for kind in frame.dtypes)
    assert "test blocks" not in frame


class Display:
    """The place of a notebook that is drawn anew."""

    def __init__(self):
        self.drawn = []

    def update(self, drawn):
        self.drawn.append(drawn.data)


def test_a_bar_in_a_notebook(monkeypatch):
    pytest.importorskip("IPython", reason="notebooks have IPython")
    monkeypatch.setattr(notebook, "OFTEN", 0.0)
    place = Display()
    fl.compare("digits", "fedavg", seeds=2, rounds=4, progress=notebook.Notebook(place))
    done = [int(re.search(r'value="(\d+)" max="8"', drawn)[1]) for drawn in place.drawn]
    assert done == sorted(done)
    assert done[0] == 0
    assert done[-1] == 8
    assert any("fedavg, seed 1: round 2 of 4, train loss" in drawn for drawn in place.drawn)
    assert "2/2 runs." in place.drawn[-1]


def test_bars_are_chosen_by_where_they_are(monkeypatch):
    assert reporter(None) is None
    assert reporter(False) is None
    mine = Lines(io.StringIO())
    assert reporter(mine) is mine
    assert isinstance(reporter(True), Lines)  # the tests have no terminal
    monkeypatch.setattr("fedloom.experiments.arguments.in_notebook", lambda: True)
    assert isinstance(reporter(True), notebook.Notebook)


def test_a_single_run_has_progress(capsys):
    fl.run(fl.experiment("digits", "fedavg", rounds=2), progress=True)
    assert "[1/1] fedavg, seed 0: 2 rounds" in capsys.readouterr().err


def test_a_shell_is_not_a_notebook():
    assert not notebook.in_notebook()
