"""Sinks: what they write is read back by each library's own reader, and what fails in them stops nothing."""

import json
import math
import struct
import sys
import types
import warnings

import numpy as np
import pytest

from fedloom import sinks
from fedloom.experiments import experiment, read_study, resume_study, run_all

E = experiment("quadratics", "fedavg", rounds=4, seed=3)
ROWS = [
    {"round": 0, "train loss": 2.5, "bytes up": 0},
    {"round": 2, "train loss": 1.25, "bytes up": 2**40 + 1},
    {"round": 4, "train loss": 0.1, "bytes up": 2**41 + 3},
]
DIVERGED = {"round": 2, "diverged": "The training loss is nan."}
NAMES = ("train loss", "bytes up")


def send(name, rows, directory, experiment=E):
    sink = sinks.sink(name)("mine", experiment, directory)
    for row in rows:
        sink.row(row)
    sink.close()


def points(rows, name):
    return [(row["round"], row[name]) for row in rows]


# What is the same for all of them.


def test_settings_are_one_table_with_dotted_names():
    plain = {"a": {"b": {"c": 1}, "d": "x"}, "e": [1, 2], "f": True, "g": {}}
    assert sinks.flat(plain) == {"a.b.c": 1, "a.d": "x", "e": "[1, 2]", "f": True}


def test_what_a_row_has_to_plot_are_its_numbers():
    row = {"round": 1, "loss": 0.5, "messages": 3, "worst": math.inf, "note": "text", "flag": True, "nothing": None}
    assert sinks.numbers(row) == {"loss": 0.5, "messages": 3, "worst": math.inf}


def test_an_unknown_sink_is_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match=r"^There is no sink 'wandv'\. Did you mean 'wandb'\?"):
        sinks.sink("wandv")


@pytest.mark.parametrize("name", sinks.SINKS)
def test_a_missing_library_is_said_before_the_run(name, monkeypatch, tmp_path):
    sentence = rf"^The sink '{name}' needs an extra: pip install 'fedloom\[{name}\]'\.$"
    monkeypatch.delitem(sys.modules, f"fedloom.sinks.{name}", raising=False)
    monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    with pytest.raises(ValueError, match=sentence):
        sinks.sink(name)
    monkeypatch.delitem(sys.modules, name)
    (tmp_path / name).mkdir()  # what a sink wrote, in a folder from which Python is run
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ValueError, match=sentence):
        sinks.sink(name)


class Stub:
    """In the place of a library: keeps what it is told, and fails where it is asked to."""

    def __init__(self, monkeypatch, fails=""):
        self.told, self.fails = [], fails
        module = types.SimpleNamespace(Writer=self.open, check_usable=lambda: self.tell("check"))
        monkeypatch.setitem(sys.modules, "fedloom.sinks.wandb", module)

    def tell(self, what, *values):
        self.told.append((what, *values))
        if what == self.fails:
            raise ConnectionError(f"no network for {what}")

    def open(self, run, settings, directory):
        self.tell("open", run, settings["solver.name"], directory)
        return self

    def numbers(self, round, numbers):
        self.tell("numbers", round, numbers)

    def diverged(self, round, words):
        self.tell("diverged", round, words)

    def close(self, ending):
        self.tell("close", ending)


def test_a_sink_that_cannot_be_used_is_refused_before_the_run(monkeypatch):
    Stub(monkeypatch, fails="check")
    with pytest.raises(ValueError, match=r"^The sink 'wandb' cannot be used: no network for check$"):
        sinks.sink("wandb")


@pytest.mark.parametrize(
    ("rows", "ending"),
    [(ROWS, "finished"), (ROWS[:2], "stopped"), ([*ROWS[:2], DIVERGED], "diverged")],
    ids=["all", "some", "diverged"],
)
def test_a_writer_gets_the_rows_and_how_they_ended(rows, ending, monkeypatch, tmp_path):
    stub = Stub(monkeypatch)
    send("wandb", rows, tmp_path)
    told = [
        ("diverged", r["round"], r["diverged"])
        if "diverged" in r
        else ("numbers", r["round"], {n: r[n] for n in NAMES})
        for r in rows
    ]
    opened = ("open", "mine/seed-3", E.to_plain()["solver"]["name"], tmp_path)
    assert stub.told == [("check",), opened, *told, ("close", ending)]


def test_a_run_that_has_no_new_rows_leaves_nothing(monkeypatch, tmp_path):
    stub = Stub(monkeypatch)
    send("wandb", [], tmp_path)
    assert stub.told == [("check",)]


@pytest.mark.parametrize("fails", ["open", "numbers", "close"])
def test_a_failing_sink_warns_once_and_the_run_is_the_same(fails, monkeypatch, tmp_path):
    expected = run_all([("mine", E)]).results[0]
    stub = Stub(monkeypatch, fails)
    with pytest.warns(RuntimeWarning) as caught:
        study = run_all([("mine", E)], tmp_path / "study", sinks=[sinks.sink("wandb")])
    assert [str(w.message) for w in caught] == [
        "The sink 'wandb' failed and will get no more rows of mine/seed-3; the run continues. "
        f"ConnectionError: no network for {fails}"
    ]
    assert study.results[0].rows == expected.rows
    told = [what for what, *_ in stub.told]
    assert told.count(fails) == 1
    assert told[-1] == fails  # a sink that has failed is not asked again, for it may take long to fail


class Interrupt:
    """Stops a study with the row of one round, as Ctrl-C would."""

    def __init__(self, round):
        self.round = round

    def begin(self, runs):
        pass

    def row(self, name, experiment, row):
        if row["round"] == self.round:
            raise KeyboardInterrupt

    def end(self, result):
        pass

    def close(self):
        pass


def interrupt_and_resume(name, directory):
    """A run that is stopped before its first checkpoint, resumed twice; and another run."""
    runs = [("mine", experiment("quadratics", "fedavg", rounds=4, seed=seed)) for seed in (3, 4)]
    with pytest.raises(KeyboardInterrupt):
        run_all([runs[0]], directory / "a", progress=Interrupt(2), sinks=[sinks.sink(name)])
    resume_study(directory / "a", sinks=[sinks.sink(name)])
    resume_study(directory / "a", sinks=[sinks.sink(name)])  # nothing is left to run
    run_all([runs[1]], directory / "b", sinks=[sinks.sink(name)])
    return [read_study(directory / place).results[0] for place in ("a", "b")]


def test_a_sink_is_closed_when_the_run_is_interrupted(monkeypatch, tmp_path):
    stub = Stub(monkeypatch)
    interrupt_and_resume("wandb", tmp_path)
    assert [told[1] for told in stub.told if told[0] == "close"] == ["stopped", "finished", "finished"]
    rounds = [told[1] for told in stub.told if told[0] == "numbers"]
    assert rounds == [0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4]  # rows after the last checkpoint are sent again


def test_the_identity_of_a_directory_stays_and_is_not_that_of_its_path(tmp_path):
    from fedloom.sinks.identity import identity

    first = identity(tmp_path)
    assert identity(tmp_path) == first
    (tmp_path / "identity").unlink()  # another run stands at the same path
    assert identity(tmp_path) != first
    assert identity(None) != identity(None)


# TensorBoard.


@pytest.fixture
def tensorboard():
    pytest.importorskip("tensorboard", reason="the extra 'tensorboard' is not installed")
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util

    def read(directory):
        events = EventAccumulator(str(directory), size_guidance={"tensors": 0})
        events.Reload()

        def series(tag):
            return [(e.step, tensor_util.make_ndarray(e.tensor_proto).item()) for e in events.Tensors(tag)]

        return events, series

    return read


def test_tensorboard_has_the_rows_and_the_settings(tensorboard, tmp_path):
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    send("tensorboard", [*ROWS, DIVERGED | {"round": 4}], tmp_path)
    events, series = tensorboard(tmp_path / "tensorboard")
    for name in NAMES:
        assert series(name) == [(r, float(np.float32(value))) for r, value in points(ROWS, name)]
        assert events.SummaryMetadata(name).plugin_data.plugin_name == "scalars"
    assert series("diverged") == [(4, DIVERGED["diverged"].encode())]
    assert events.SummaryMetadata("diverged").plugin_data.plugin_name == "text"
    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    settings = HParamsPluginData.FromString(content).session_start_info.hparams
    assert settings.keys() == sinks.flat(E.to_plain()).keys()
    assert settings["rounds"].number_value == 4
    assert settings["algorithm.name"].string_value == "fedavg"


def test_tensorboard_forgets_the_rows_that_are_sent_again(tensorboard, tmp_path):
    for result in interrupt_and_resume("tensorboard", tmp_path):
        _, series = tensorboard(result.directory / "tensorboard")
        for name in ("train loss", "messages"):
            assert series(name) == [(r, float(np.float32(value))) for r, value in points(result.rows, name)]


def test_tensorboard_without_a_directory_writes_below_the_present_one(tensorboard, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    send("tensorboard", ROWS, None)
    assert tensorboard(tmp_path / "tensorboard/mine/seed-3")[1]("train loss")[0] == (0, 2.5)


def test_tensorboard_sees_a_row_at_once(tensorboard, tmp_path):
    sink = sinks.sink("tensorboard")("mine", E, tmp_path)
    for row in ROWS:
        sink.row(row)
        assert tensorboard(tmp_path / "tensorboard")[1]("train loss")[-1][0] == row["round"]
    sink.close()


# MLflow.


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    """A client of an empty store of files, which needs no database."""
    mlflow = pytest.importorskip("mlflow", reason="the extra 'mlflow' is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    return mlflow.MlflowClient()


def mlflow_runs(client, name="fedloom"):
    return client.search_runs([client.get_experiment_by_name(name).experiment_id], order_by=["attributes.start_time"])


def mlflow_points(client, run, name):
    return [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)]


def test_mlflow_has_the_rows_and_the_settings(mlflow, tmp_path):
    send("mlflow", ROWS, tmp_path)
    (run,) = mlflow_runs(mlflow)
    assert (run.info.run_name, run.info.status) == ("mine/seed-3", "FINISHED")
    assert run.data.params == {key: str(value) for key, value in sinks.flat(E.to_plain()).items()}
    for name in NAMES:
        assert mlflow_points(mlflow, run, name) == points(ROWS, name)
    assert "diverged" not in run.data.tags


def test_mlflow_says_that_a_run_diverged_and_takes_any_name_of_a_metric(mlflow, monkeypatch):
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "elsewhere")
    send("mlflow", [{"round": 1, "worst 10%: loss": 0.5}, DIVERGED], None)
    (run,) = mlflow_runs(mlflow, "elsewhere")
    assert run.info.status == "FAILED"
    assert run.data.tags["diverged"] == "Round 2: The training loss is nan."
    assert run.data.metrics == {"worst 10__ loss": 0.5}


def test_mlflow_goes_on_with_the_run_of_a_resumed_run(mlflow, tmp_path):
    results = interrupt_and_resume("mlflow", tmp_path)
    runs = mlflow_runs(mlflow)
    assert [r.info.run_name for r in runs] == ["mine/seed-3", "mine/seed-4"]
    for run, result in zip(runs, results, strict=True):
        assert run.info.status == "FINISHED"
        found = mlflow_points(mlflow, run, "train loss")
        assert sorted(set(found)) == points(result.rows, "train loss")  # what was sent twice is twice the same


def test_mlflow_shows_whether_a_run_is_running(mlflow, tmp_path):
    for rows, ending in ((ROWS[:2], "KILLED"), (ROWS[1:], "FINISHED")):
        sink = sinks.sink("mlflow")("mine", E, tmp_path)
        for row in rows:
            sink.row(row)
        assert [run.info.status for run in mlflow_runs(mlflow)] == ["RUNNING"]
        sink.close()
        assert [run.info.status for run in mlflow_runs(mlflow)] == [ending]


def test_a_place_that_mlflow_does_not_know_is_refused_before_the_run(mlflow, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://here")
    with pytest.raises(ValueError, match=r"^The sink 'mlflow' cannot be used: .*nonsense"):
        sinks.sink("mlflow")


# Weights & Biases.


@pytest.fixture
def wandb(tmp_path, monkeypatch):
    """Offline, and nothing outside of the temporary directory."""
    for name in ("WANDB_PROJECT", "WANDB_DIR", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # at import, in libraries of its own
        library = pytest.importorskip("wandb", reason="the extra 'wandb' is not installed")
    library.teardown()  # of what other tests have set up with another environment
    yield library
    library.teardown()


def wandb_records(path):
    """The records of an offline run: a log in LevelDB's format after a header of seven bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, parts, records = path.read_bytes(), 7, b"", []
    assert data[:4] == b":W&B"
    while at + 7 <= len(data):
        if 2**15 - at % 2**15 < 7:  # the end of a block is too short for a header
            at += 2**15 - at % 2**15
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            records.append(Record.FromString(parts))
            parts = b""
    return records


def wandb_read(library, directory):
    """The offline runs in a directory, oldest first: (run, {name: points}, summary, exit code)."""
    library.teardown()  # the process that writes them has ended then; `finish` may return before all is on disk
    found = []
    for path in sorted(directory.glob("wandb/offline-run-*/run-*.wandb")):
        records = wandb_records(path)
        (run,) = [r.run for r in records if r.HasField("run")]
        series, summary = {}, {}
        for record in records:
            for item in record.history.item:
                key = item.key or ".".join(item.nested_key)
                series.setdefault(key, []).append((record.history.step.num, json.loads(item.value_json)))
            for item in record.summary.update:
                summary[item.key or ".".join(item.nested_key)] = json.loads(item.value_json)
        (code,) = [r.exit.exit_code for r in records if r.HasField("exit")]
        found.append((run, series, summary, code))
    return found


def test_wandb_has_the_rows_and_the_settings(wandb, tmp_path):
    send("wandb", ROWS, tmp_path)
    ((run, series, _, code),) = wandb_read(wandb, tmp_path)
    assert (run.project, run.display_name, code) == ("fedloom", "mine/seed-3", 0)
    config = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in run.config.update}
    assert {key: config[key] for key in config if key != "_wandb"} == sinks.flat(E.to_plain())
    for name in NAMES:
        assert series[name] == points(ROWS, name)


def test_wandb_goes_on_with_the_run_of_a_resumed_run_beside_the_users_own(wandb, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_PROJECT", "elsewhere")
    own = wandb.init(dir=tmp_path / "home", project="own")
    send("wandb", ROWS[:2], tmp_path)
    send("wandb", [ROWS[1], DIVERGED], tmp_path)
    own.log({"own": 1})
    own.finish()
    runs = wandb_read(wandb, tmp_path)
    assert len({run.run_id for run, *_ in runs}) == 1
    assert {run.project for run, *_ in runs} == {"elsewhere"}
    assert [code for *_, code in runs] == [1, 1]
    assert any(summary.get("diverged") == DIVERGED["diverged"] for _, _, summary, _ in runs)


def test_wandb_without_an_account_is_refused_before_the_run(wandb, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "online")
    wandb.teardown()
    with pytest.raises(ValueError, match=r"^The sink 'wandb' cannot be used: .*log in"):
        sinks.sink("wandb")
