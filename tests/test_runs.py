"""Runs: logs, checkpoints, what happens when they are stopped, and what cannot be resumed."""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom.experiments import Experiment, changed, checkpoint, experiment, files, loading, read, resume, run
from fedloom.experiments.run_directory import create_run


def small(algorithm="feddyn", rounds=6, **changes):
    return experiment("quadratics", algorithm, **({"rounds": rounds, "evaluate_every": 1} | changes))


def log(directory):
    return (pathlib.Path(directory) / "log.jsonl").read_bytes()


def test_a_log_has_the_rows_that_a_loop_over_simulate_would_write(tmp_path):
    e = small("feddr", rounds=7, evaluate_every=3, seed=5)
    result = run(e, tmp_path / "a")
    loaded = fl.load("quadratics", seed=5)
    records = list(fl.simulate(e.algorithm, loaded.federation, e.solver, loaded.w, 7, cohort=e.cohort, seed=5, chunk=3))
    assert [row["round"] for row in result.rows] == [0, 3, 6, 7]
    assert result.rows[0]["train loss"] == float(loaded.federation.loss(loaded.w))
    for row, record in zip(result.rows[1:], records, strict=True):
        assert row["train loss"] == float(loaded.federation.loss(record.w))
        assert row["bytes up"] == record.counters.bytes_up
        assert row["gradients"] == record.counters.gradients
    np.testing.assert_array_equal(result.w, records[-1].w)
    assert [json.loads(line) for line in log(tmp_path / "a").splitlines()] == result.rows
    again = read(tmp_path / "a")
    assert again.rows == result.rows
    np.testing.assert_array_equal(again.w, result.w)
    assert again.finished
    assert again.experiment == e


@pytest.mark.parametrize("algorithm", ["scaffold", "fedadam", "feddane"])
def test_equal_experiments_have_equal_logs_and_models(tmp_path, algorithm):
    e = experiment("digits", algorithm, rounds=3)
    first, second = run(e, tmp_path / "a"), run(e, tmp_path / "b")
    assert log(tmp_path / "a") == log(tmp_path / "b")
    np.testing.assert_array_equal(first.w, second.w)
    assert run(e).rows == first.rows  # also without a directory


def test_seeds_change_everything_and_algorithms_nothing_else():
    """Common random numbers: for one seed all methods see the same split, model, cohorts and minibatches."""

    def start(e):
        loaded = e.load()
        draws = [
            e.cohort.over(np.asarray(loaded.federation.weights))(np.random.default_rng([e.seed, t, 0]), t).ids
            for t in range(5)
        ]
        return loaded.data.split.order, np.asarray(loaded.w), np.concatenate(draws)

    first, other = (start(experiment("digits", a, seed=1)) for a in ("fedavg", "scaffold"))
    for x, y in zip(first, other, strict=True):
        np.testing.assert_array_equal(x, y)
    for x, y in zip(first, start(experiment("digits", "fedavg", seed=2)), strict=True):
        assert not np.array_equal(x, y)
    # FedProx with mu = 0 is FedAvg: equal logs, so cohorts and minibatches are equal too; another seed differs.
    zero = fl.FedProx(0.0, lr=experiment("digits", "fedavg").algorithm.lr)
    rows = [run(experiment("digits", a, rounds=2, seed=s)).rows for a, s in (("fedavg", 1), (zero, 1), ("fedavg", 2))]
    assert [r["test loss"] for r in rows[0]] == pytest.approx([r["test loss"] for r in rows[1]], rel=1e-12)
    assert rows[0][0]["test loss"] != rows[2][0]["test loss"]


def test_only_the_shuffles_differ_when_only_they_can():
    """One client with everything, the same model: what differs between seeds is the order of the minibatches."""
    data = fl.by_client(np.arange(20.0)[:, None], np.arange(20) % 2, np.zeros(20), test=0)
    task = fl.Task("one", data, fl.models.mlp(1, 2), weights="uniform")
    w = task.load(0).w
    loaded = [dataclasses.replace(task.load(s), w=w) for s in (0, 1)]
    ends = [
        list(fl.simulate(fl.FedAvg(), x.federation, fl.SGD(0.01, batch_size=3), x.w, 1, seed=s))[-1].w
        for s, x in enumerate(loaded)
    ]
    assert not jnp.array_equal(*ends)


def crash_points(monkeypatch, crash_at):
    """Raise before or after the n-th step by which a file becomes durable."""
    count = 0

    def wrapped(function):
        def step(*arguments, **keywords):
            nonlocal count
            count += 1
            if count == crash_at:
                raise Killed
            value = function(*arguments, **keywords)
            count += 1
            if count == crash_at:
                raise Killed
            return value

        return step

    for name in ("replace", "fsync"):
        monkeypatch.setattr(files.os, name, wrapped(getattr(os, name)))
    return lambda: count


class Killed(BaseException):
    pass


def test_stopped_at_any_step_of_any_file_a_run_ends_with_the_same_bits(tmp_path):
    e = small("scaffold", rounds=3, solver="gd")
    whole = run(e, tmp_path / "whole")
    point = ends = 0
    while not ends:
        point += 1
        directory = tmp_path / f"stopped{point}"
        create_run(e, directory)
        with pytest.MonkeyPatch.context() as patch:
            steps = crash_points(patch, point)
            try:
                resume(directory, checkpoint_seconds=0)
                ends = steps()
            except Killed:
                pass
        result = resume(directory, checkpoint_seconds=0)
        assert log(directory) == log(tmp_path / "whole"), point
        np.testing.assert_array_equal(result.w, whole.w)
        np.testing.assert_array_equal(read(directory).w, whole.w)
    assert point > 40  # there were so many steps


@pytest.mark.parametrize("tail", [b'{"round": 95, "tr', b'{"round": 95}\n{"round": 96}\n'], ids=["half a row", "rows"])
def test_what_was_logged_after_the_checkpoint_is_written_again(tmp_path, tail):
    e = small()
    whole = run(e, tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "a")
    (tmp_path / "a/checkpoint.npz").unlink()  # as if killed before the first checkpoint
    with open(tmp_path / "a/log.jsonl", "ab") as file:
        file.write(tail)
    result = resume(tmp_path / "a")
    assert log(tmp_path / "a") == log(tmp_path / "whole")
    np.testing.assert_array_equal(result.w, whole.w)


def stop_after(directory, rows):
    """A function to watch with, which stops a run after so many rows."""

    def watch(row):
        if row["round"] == rows:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resume(directory, watch=[watch], checkpoint_seconds=0)


def stopped(directory, e=None):
    create_run(e or small(), directory)
    stop_after(directory, 3)
    return directory


def test_a_finished_run_is_read_and_not_run_again(tmp_path):
    run(small(), tmp_path / "a")
    before = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "a").iterdir() if p.name != "lock"}

    def watch(row):
        raise AssertionError

    assert resume(tmp_path / "a", watch=[watch]).finished
    assert before == {p.name: p.stat().st_mtime_ns for p in (tmp_path / "a").iterdir() if p.name != "lock"}


def refused(directory, sentence):
    """Resuming says the sentence and changes no file."""
    before = {p.name: p.read_bytes() for p in directory.iterdir() if p.name != "lock"}
    with pytest.raises(ValueError, match=sentence):
        resume(directory)
    assert before == {p.name: p.read_bytes() for p in directory.iterdir() if p.name != "lock"}


def test_a_checkpoint_of_another_experiment(tmp_path):
    directory = stopped(tmp_path / "a")
    config = directory / "config.toml"
    config.write_text(changed(small(), {"algorithm.alpha": 2.0}).to_toml())
    refused(directory, r"checkpoint.npz belongs to another experiment: .*config.toml was changed")


def test_a_checkpoint_of_another_version(tmp_path, monkeypatch):
    directory, checkpoint_format = stopped(tmp_path / "a"), checkpoint.FORMAT
    with monkeypatch.context() as patch:
        patch.setattr("fedloom.experiments.about.__version__", "99.0")
        refused(directory, rf"was written with fedloom {fl.__version__} \(here 99.0\)")
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "FORMAT", 99)
        refused(directory, rf"has format {checkpoint_format}, but this version of FedLoom reads format 99")
    assert resume(directory).finished


def test_a_checkpoint_that_is_not_one(tmp_path):
    directory = stopped(tmp_path / "a")
    good = (directory / "checkpoint.npz").read_bytes()
    for bad in (b"", b"nothing", good[: len(good) // 2]):
        (directory / "checkpoint.npz").write_bytes(bad)
        refused(directory, r"checkpoint.npz cannot be read as a checkpoint")


def test_a_log_that_was_cut(tmp_path):
    directory = stopped(tmp_path / "a")
    (directory / "log.jsonl").write_bytes(log(directory)[:50])
    refused(directory, "has fewer rows than its checkpoint recorded")
    run(small(), tmp_path / "b")
    (tmp_path / "b/log.jsonl").unlink()
    refused(tmp_path / "b", "has fewer rows than its checkpoint recorded")


def test_damaged_files_are_named(tmp_path):
    directory = stopped(tmp_path / "a")
    np.savez(directory / "checkpoint.npz", x=np.zeros(3))
    refused(directory, "is not a checkpoint")
    run(small(), tmp_path / "b")
    (tmp_path / "b/about.json").unlink()
    with pytest.raises(ValueError, match=r"about.json is missing"):
        read(tmp_path / "b")


def test_the_config_of_a_finished_run_cannot_be_changed_either(tmp_path):
    run(small(), tmp_path / "a")
    (tmp_path / "a/config.toml").write_text(changed(small(), {"algorithm.alpha": 7.0}).to_toml())
    refused(tmp_path / "a", "belongs to another experiment")
    with pytest.raises(ValueError, match="belongs to another experiment"):
        read(tmp_path / "a")
    create_run(small(), tmp_path / "b")
    with pytest.raises(ValueError, match="differs from the experiment that was given"):
        resume(tmp_path / "b", experiment=small(seed=1))


def test_a_run_of_a_version_that_had_fewer_fields_is_the_same_run(tmp_path, monkeypatch):
    """FedDyn's weighting is newer than many runs; they had what is its default now."""
    whole = Experiment.to_toml
    with monkeypatch.context() as earlier:
        earlier.setattr(Experiment, "to_toml", lambda self: whole(self).replace('weighting = "means"\n', ""))
        run(small(), tmp_path / "a")
    assert "weighting" not in (tmp_path / "a/config.toml").read_text()
    assert "weighting" in small().to_toml()
    assert read(tmp_path / "a").finished
    assert resume(tmp_path / "a").rows == run(small()).rows


TASK = """
import numpy as np, fedloom as fl
def data(seed):
    return fl.by_client(np.load("x.npy"), np.arange(12) % 2, np.arange(12) % 3, test=0.25)
task = fl.Task("mine", data, fl.models.mlp(1, 2))
"""


def test_data_that_changed_since(tmp_path):
    """The task's own file is as it was, which is another guard's business: tests/test_own_files.py."""
    (tmp_path / "mine.py").write_text(TASK)
    np.save("x.npy", np.arange(12.0)[:, None])
    directory = stopped(tmp_path / "a", experiment("mine.py:task", "fedavg", rounds=5))
    np.save("x.npy", np.arange(12.0)[:, None] * 2)
    loading.load.cache_clear()
    refused(directory, "the task or its data have changed since")


def test_a_damaged_checkpoint_is_refused_or_harmless(tmp_path):
    """A byte changed anywhere: a sentence with the file's name, or the very same end."""
    whole = run(small(), tmp_path / "whole")
    directory = stopped(tmp_path / "a")
    good = {p.name: p.read_bytes() for p in directory.iterdir()}
    content = good["checkpoint.npz"]
    refusals = []
    for place in range(0, len(content), len(content) // 60):
        for name, old in good.items():
            (directory / name).write_bytes(old)
        (directory / "checkpoint.npz").write_bytes(content[:place] + bytes([content[place] ^ 5]) + content[place + 1 :])
        try:
            np.testing.assert_array_equal(resume(directory).w, whole.w)
        except ValueError as error:
            refusals.append(str(error))
    assert len(refusals) > 20
    assert all("checkpoint.npz" in sentence for sentence in refusals)


def test_a_checkpoint_that_lacks_a_part(tmp_path):
    directory = stopped(tmp_path / "a")
    arrays = dict(np.load(directory / "checkpoint.npz"))
    for name in ("clients", "server 0"):
        np.savez(directory / "checkpoint.npz", **{n: a for n, a in arrays.items() if n != name})
        refused(directory, "is not a complete checkpoint")


def test_a_model_of_another_size_or_type(tmp_path):
    directory = stopped(tmp_path / "a")
    meta = dict(np.load(directory / "checkpoint.npz"))
    np.savez(directory / "checkpoint.npz", **meta | {"server 0": meta["server 0"].astype(np.float32)})
    refused(directory, "a model of another size or float type")


def test_time_adds_up_over_processes(tmp_path):
    directory = stopped(tmp_path / "a")
    (directory / "seconds.json").write_text('{"seconds": 1000}')
    assert 1000 < resume(directory).seconds < 1100


def test_few_rounds_cost_no_more_if_they_are_seldom_evaluated():
    rows = run(small(evaluate_every=4_000_000_000)).rows  # would not fit into memory
    assert [row["round"] for row in rows] == [0, 6]


def test_clients_that_are_not_finite_can_be_left_out():
    data = fl.by_client(np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([0, 1, 0, 1]), np.arange(4), test=0)

    def prepare(rows, key):
        return jnp.where(rows[0] == 3.0, jnp.inf, rows[0]), rows[1]

    task = fl.Task("bad", data, fl.models.mlp(1, 2), prepare=prepare)
    e = experiment(task, "fedavg", rounds=2, on_nonfinite="drop")
    records = list(fl.simulate(e.algorithm, e.load().federation, e.solver, e.load().w, 2, seed=0, on_nonfinite="drop"))
    assert records[-1].dropped
    assert run(changed(e, {"on_nonfinite": "raise"})).diverged
    assert "loss is inf" in run(e).diverged  # of all clients, and so of the bad one too


def test_directories_that_are_not_free(tmp_path):
    directory = tmp_path / "a"
    run(small(), directory)
    with pytest.raises(ValueError, match=r"already has a run; run `fedloom resume .*` to continue"):
        run(small(), directory)
    (tmp_path / "b").mkdir()
    (tmp_path / "b/thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match="already exists and is not empty; choose another directory"):
        run(small(), tmp_path / "b")
    with pytest.raises(ValueError, match=r"cannot be written to: Not a directory. Choose another"):
        run(small(), tmp_path / "b/thesis.tex/c")
    with pytest.raises(ValueError, match=r"is not the directory of a run: it has no config.toml"):
        resume(tmp_path / "b")
    assert (tmp_path / "b/thesis.tex").read_text() == "mine"


def test_two_processes_cannot_run_in_one_directory(tmp_path):
    pytest.importorskip("fcntl")
    create_run(small(), tmp_path / "a")
    with files.only_one(tmp_path / "a"):
        refused(tmp_path / "a", "Another process is running in")


SMALL_DISK = """
import resource, signal, sys
from fedloom.experiments import resume
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    resume(sys.argv[1], checkpoint_seconds=0)
except OSError as error:
    print("stopped:", error.strerror)
"""


def test_a_disk_that_is_too_small(tmp_path):
    """A limit on the size of files fails as a full disk does: in the middle of a write."""
    whole = run(small("scaffold", rounds=30, solver="gd"), tmp_path / "whole")
    for limit in (1500, 4000):  # within the checkpoint, within the log
        directory = tmp_path / str(limit)
        create_run(whole.experiment, directory)
        command = [sys.executable, "-c", SMALL_DISK, str(directory), str(limit)]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"JAX_ENABLE_X64": "1"})
        assert done.stdout == "stopped: File too large\n", done.stderr
        assert not list(directory.glob("*.draft"))
        result = resume(directory)
        assert log(directory) == log(tmp_path / "whole")
        np.testing.assert_array_equal(result.w, whole.w)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"algorithm": "fedsgd", "algorithm.lr": 1e200}, r"returned NaN or infinity|contains NaN or infinity|loss is"),
        ({"algorithm": "fedsgd", "algorithm.lr": 100.0}, "The training loss is .* at the start"),
    ],
    ids=["infinite", "exploded"],
)
@pytest.mark.parametrize("every", [1, 7])
def test_divergence_is_a_result(tmp_path, changes, words, every):
    e = changed(small("fedavg", rounds=50, cohort="everyone", evaluate_every=every), changes)
    result = run(e, tmp_path / "a")
    assert result.finished
    assert re.search(words, result.diverged)
    assert result.rows[-1]["round"] < 50
    assert all(np.isfinite(row["train loss"]) for row in result.evaluated)
    again = resume(tmp_path / "a")
    assert again.w is None
    assert result.w is None
    assert again.diverged == result.diverged
    assert again.rows == result.rows


@pytest.mark.parametrize(
    ("first", "later", "diverged"), [(2.0, 1900.0, False), (2.0, 2100.0, True), (1e-9, 900.0, False)]
)
def test_how_far_a_loss_may_rise(monkeypatch, first, later, diverged):
    """A thousand times above the first one, or above 1."""
    losses = iter([first, later, first])
    monkeypatch.setattr("fedloom.tasks.Evaluation.of", lambda self, w, *_: {"train loss": next(losses)})
    result = run(small(rounds=2))
    assert bool(result.diverged) == diverged
    assert len(result.rows) == (2 if diverged else 3)


def test_resuming_a_record_does_not_repeat_its_own_residual():
    """Residual, unsolved and dropped are of the rounds since the record before."""
    f = fl.quadratics(clients=4, dimension=3, seed=0)
    solver = fl.ToTolerance(tolerance=fl.schedules.exponential(0.5, 0.1), lr=0.05)
    arguments = (fl.FedProx(1.0), f, solver, jnp.ones(3), 4)
    records = [r.keep() for r in fl.simulate(*arguments)]
    resumed = list(fl.simulate(*arguments, resume=records[1]))
    assert [r.residual for r in resumed] == [r.residual for r in records[2:]]


def test_clients_own_models_are_logged_where_it_is_asked_for(tmp_path):
    """Own model k of FedDR is x_k in its memory: its loss on its own examples, weighted by p_k."""
    rng, owner = np.random.default_rng(0), np.repeat(np.arange(6), [8, 16, 24, 8, 16, 24])
    x = rng.normal(size=(len(owner), 3)) + rng.normal(size=(6, 3))[owner]
    data = fl.by_client(x, (x[:, 0] > x[:, 1] * (owner - 2)).astype(int), owner, test=0.25)
    task = fl.Task("mine", data, fl.models.logistic(3, 2))
    e = experiment(task, "feddr", rounds=2, own_models=True, cohort=fl.cohorts.uniform(2))
    result = run(e, tmp_path / "a")
    loaded = e.load()
    arguments = (e.algorithm, loaded.federation, e.solver, loaded.w, 2)
    record = list(fl.simulate(*arguments, cohort=e.cohort, seed=e.seed))[-1]
    assert 1 < len(record.clients) < 6  # some have no model of their own yet
    p = np.asarray(loaded.federation.weights)
    models = [record.clients[k].x if k in record.clients else loaded.w for k in range(len(p))]
    losses = [float(loaded.federation.objective(k).loss(w)) for k, w in enumerate(models)]
    assert result.rows[-1]["own train loss"] == pytest.approx(p @ losses, rel=1e-9)
    assert result.rows[-1]["own train loss"] != pytest.approx(result.rows[-1]["train loss"], rel=1e-3)
    assert result.rows[0]["own train loss"] == pytest.approx(result.rows[0]["train loss"], rel=1e-9)
    correct, total = 0.0, 0
    x, y = loaded.data.test
    for k, w in enumerate(models):
        rows = loaded.data.test_split.rows(k)
        outputs = loaded.task.model.apply(loaded.task.model.unravel(jnp.asarray(w)), x[rows], None)
        correct, total = correct + float((outputs.argmax(1) == y[rows]).sum()), total + len(rows)
    assert result.rows[-1]["own test accuracy"] == pytest.approx(correct / total)
    assert set(result.metrics) <= set(result.rows[-1])
    with pytest.raises(ValueError, match="fedavg does not keep a model for each client"):
        run(experiment("digits", "fedavg", own_models=True))
    with pytest.raises(ValueError, match="'quadratics' have no examples"):
        run(experiment("quadratics", "feddr", own_models=True))


def test_a_directory_is_not_opened_on_windows(tmp_path, monkeypatch):
    """Windows refuses to open one; files are written whole all the same."""

    def refuse(path, *arguments):
        raise PermissionError(f"{path} is a directory")

    monkeypatch.setattr(files.os, "open", refuse)
    with pytest.raises(PermissionError):
        files.write_whole(tmp_path / "a", b"x")
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "name", "nt")
        files.write_whole(tmp_path / "a", b"y")
    assert (tmp_path / "a").read_bytes() == b"y"
