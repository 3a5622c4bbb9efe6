"""Experiments on a real cluster: checkpoints in shards, a driver that is killed, whole runs in parallel."""

import dataclasses
import json
import os
import random
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

import fedloom as fl
from fedloom.cli import main
from fedloom.experiments import checkpoint, experiment, read, resume, run
from fedloom.experiments.runs import finish
from tests import conftest
from tests.ray_cluster import ENVIRONMENT, NODE, ROOT, kill, later, two_nodes

pytest.importorskip("ray", reason="needs Ray: pip install 'fedloom[ray]'")
# Ray starts programs, and leaves sockets to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*os.fork.*:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

DRIVER = """
import sys
from fedloom.cluster.connect import connect
from fedloom.experiments import resume
connect(sys.argv[1])
print("connected", flush=True)
resume(sys.argv[2], checkpoint_seconds=float(sys.argv[3]))
"""
ROUNDS = 30


@pytest.fixture(scope="module")
def cluster():
    with two_nodes() as found:
        yield found


def on_ray(**more):
    return experiment(
        "quadratics", "scaffold", solver="gd", rounds=ROUNDS, evaluate_every=1, engine="ray", shards=4, **more
    )


def log_of(directory):
    return (directory / "log.jsonl").read_bytes()


def test_a_driver_that_is_killed_again_and_again_is_resumed_to_the_same_log(cluster, tmp_path):
    """At random moments, with a checkpoint after every row or after none; at last on a cluster of one node."""
    whole = run(on_ray(), tmp_path / "whole")
    alone = run(dataclasses.replace(on_ray(), engine="simulate", shards=None))
    for one, other in zip(whole.rows, alone.rows, strict=True):
        assert one.keys() == other.keys()
        assert all(abs(one[key] - other[key]) <= 1e-12 * max(1, abs(one[key])) for key in one)
    assert sorted(p.name for p in (tmp_path / "whole").glob("memories-*/*")) == [f"shard-{s}.npz" for s in range(4)]
    directory = tmp_path / "killed"
    directory.mkdir()
    (directory / "config.toml").write_text(on_ray().to_toml())
    rng = random.Random(0)
    for seconds in (0.0, 0.0, 1e9):
        _killed(cluster, directory, seconds, rng)
    assert len(log_of(directory).splitlines()) < ROUNDS
    cluster.remove_node(cluster.list_all_nodes()[1])  # it goes on with another number of machines
    try:
        ended = resume(directory, checkpoint_seconds=0)
    finally:
        cluster.add_node(**NODE)
    assert log_of(directory) == log_of(tmp_path / "whole")
    assert read(directory).w.tobytes() == np.asarray(whole.w).tobytes()
    assert ended.finished
    assert len(list(directory.glob("memories-*"))) == 1  # those that no checkpoint needs are gone
    k = 3
    start = checkpoint.read_memory(directory / "checkpoint.npz", on_ray().algorithm, alone.w, k)
    other = checkpoint.read_memory(tmp_path / "whole/checkpoint.npz", on_ray().algorithm, alone.w, k)
    assert jax.tree.leaves(start)
    assert all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (start, other)), strict=True))


def _killed(cluster, directory, seconds, rng):
    """Resume in another process, and kill it after a few rows."""
    cache = {name.upper(): str(getattr(jax.config, name)) for name in conftest.CACHE}
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, cluster.address, str(directory), str(seconds)],
        env=os.environ | ENVIRONMENT | cache | {"JAX_ENABLE_X64": "1", "JAX_NUM_CPU_DEVICES": "3"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            before, until = _rows(directory), time.monotonic() + 120
            while _rows(directory) < min(before + rng.randint(2, 6), ROUNDS - 2) and time.monotonic() < until:
                assert child.poll() is None, child.stderr.read()
                time.sleep(0.005)
            time.sleep(rng.uniform(0, 0.02))
        finally:
            kill(child.pid)
        child.wait(60)


def _rows(directory):
    log = directory / "log.jsonl"
    return len(log.read_bytes().splitlines()) if log.exists() else 0


def test_whole_runs_in_parallel_have_the_bits_of_runs_alone(cluster, tmp_path, monkeypatch):
    """Also if a process dies with one of them, and if the study is resumed; a sweep keeps its batches."""
    from fedloom.cluster import runners
    from fedloom.experiments.spread import spread_alone, spread_batches
    from fedloom.experiments.study import run_all

    runs = [
        (name, experiment("quadratics", name, solver="gd", rounds=60, evaluate_every=1, seed=seed))
        for name in ("fedavg", "scaffold")
        for seed in range(2)
    ]
    here = run_all(runs, tmp_path / "here")
    made, started = runners._runner, []

    def runner():
        started.append(made())
        return started[-1]

    monkeypatch.setattr(runners, "_runner", runner)
    rows = []

    class Progress:
        begin = end = say = lambda self, *args: None

        def row(self, name, e, row):
            rows.append((name, e.seed, row["round"]))
            if len(rows) == 1:  # a process dies in its work
                import ray

                later(0.0, ray.kill, started[0])

        def close(self):
            pass

    there = run_all(runs, tmp_path / "there", progress=Progress(), each=spread_alone)
    assert len(started) >= 3
    assert sorted(set(rows)) == sorted(rows)  # every row once
    for one, other in zip(here.results, there.results, strict=True):
        assert other.finished
        assert log_of(one.directory) == log_of(other.directory)
    lr = {"solver.lr": [0.05, 0.1, 0.2], "algorithm.lr": [0.5, 1.0]}
    base = experiment("quadratics", "fedavg", solver="gd", rounds=5, evaluate_every=1)
    one = fl.sweep(base, lr, directory=tmp_path / "sweep")
    other = fl.sweep(base, lr, directory=tmp_path / "spread", each=spread_batches)
    assert [log_of(r.directory) for r in one.results] == [log_of(r.directory) for r in other.results]


def test_the_command_runs_compares_and_resumes(cluster, tmp_path, capsys):
    """compare without --shards records runs that need no cluster; run has shards."""
    few = ["--rounds", "3", "--quiet"]
    assert main(["run", "quadratics", "--engine", "ray", "--shards", "2", "--out", str(tmp_path / "one"), *few]) == 0
    about = json.loads((tmp_path / "one/about.json").read_text())
    assert about["plan"]["shards"] == 2
    assert main(["resume", str(tmp_path / "one"), "--address", "local", "--quiet"]) == 0
    several = ["compare", "quadratics", "--algorithms", "fedavg,feddr", "--seeds", "1", "--engine", "ray"]
    assert main([*several, "--out", str(tmp_path / "several"), *few]) == 0
    config = (tmp_path / "several/fedavg/seed-0/config.toml").read_text()
    assert 'engine = "simulate"' in config
    assert main(["extend", str(tmp_path / "several"), "--seeds", "2", "--address", "local", "--quiet"]) == 0
    assert (tmp_path / "several/feddr/seed-1/checkpoint.npz").exists()
    assert "feddr" in capsys.readouterr().out


BAD = {
    "shards = 2 requires a cluster; add engine = 'ray'": ["--shards", "2"],
    "--address is that of a cluster; add --engine ray": ["--address", "auto"],
    "shards must be": ["--engine", "ray", "--shards", "0"],
    "a part of a cohort runs on one device": ["--engine", "ray", "--plan", "2x2"],
}


@pytest.mark.parametrize("words", BAD)
def test_bad_input_is_a_sentence(cluster, words, tmp_path, capsys):
    assert main(["run", "quadratics", *BAD[words], "--out", str(tmp_path / "no")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_a_node_that_differs_is_refused_before_the_work(cluster, monkeypatch):
    """Another version, data that are missing there, a directory that is not shared."""
    from fedloom.cluster import engine as module

    args = (fl.Scaffold(), fl.quadratics(clients=5), fl.GD(0.1, 2), np.zeros(4), 2)
    with monkeypatch.context() as patch:
        patch.setattr(module, "versions_here", lambda: {"jax": "0.0.1"})
        with pytest.raises(ValueError, match=r"Node 127.0.0.1 of the cluster: it has jax .*, not 0.0.1 as the driver"):
            fl.on_ray(*args, shards=2)
    driver = os.getpid()

    def here_only():
        if os.getpid() != driver:
            raise FileNotFoundError("mnist is not in the data directory.")
        return args[1]

    with pytest.raises(ValueError, match="of the cluster: mnist is not in the data directory"):
        fl.on_ray(args[0], here_only, *args[2:], shards=2)


def test_a_node_without_room_for_the_data_is_refused(cluster, monkeypatch):
    import ray

    from fedloom.cluster.connect import room_for

    small = {"Alive": True, "NodeManagerAddress": "10.0.0.7", "Resources": {"CPU": 4.0, "memory": 10e9}}
    monkeypatch.setattr(ray, "nodes", lambda: [small, {**small, "Resources": {"CPU": 4.0, "memory": 99e9}}])
    assert room_for(16, 2 * 10**9) == (8, 1.0, 2)
    assert room_for(3, 3 * 10**9) == (3, 2.0, 2)  # fewer workers, which have more CPUs
    with pytest.raises(ValueError, match=r"take 3 GB in each of up to 4 workers of node 10.0.0.7, which has 10 GB"):
        room_for(16, 3 * 10**9)


@pytest.mark.exhaustive
def test_a_torch_module_from_a_file_runs_on_a_cluster(cluster, tmp_path):
    """Its clients are computed outside JAX, in workers that import the file themselves."""
    pytest.importorskip("torch", reason="needs PyTorch: pip install 'fedloom[torch]'")
    task = f"{ROOT}/examples/torch_cnn.py:task"
    common = ["--algorithm", "scaffold", "--rounds", "1", "--cohort.m", "4", "--quiet"]
    assert main(["run", task, *common, "--engine", "ray", "--shards", "2", "--out", str(tmp_path / "there")]) == 0
    assert main(["run", task, *common, "--out", str(tmp_path / "here")]) == 0
    there, here = (read(tmp_path / name).rows[-1] for name in ("there", "here"))
    assert there["test loss"] == pytest.approx(here["test loss"], rel=1e-4)
    assert there["gradients"] == here["gradients"]


def test_there_is_no_cluster(cluster, monkeypatch, tmp_path, capsys):
    """Nobody listens; or it is no address."""
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    for address in ("127.0.0.1:1", "somewhere", "ray://127.0.0.1:1"):
        command = ["run", "quadratics", "--engine", "ray", "--address", address, "--out", str(tmp_path / "no")]
        assert main(command) == 2
        assert f"address: there is no Ray cluster at '{address}'" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_the_example_of_two_nodes():
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/two_nodes.py")],
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "the same as on one machine, up to rounding; memories of" in done.stdout


def test_memories_in_shards_are_read_where_ray_is_not_needed(cluster, tmp_path):
    """A checkpoint whose files of shards are damaged is one that is damaged."""
    e = on_ray()
    directory = tmp_path / "run"
    run(e, directory)
    (shard,) = directory.glob("memories-*/shard-1.npz")
    shard.write_bytes(b"")
    longer = dataclasses.replace(e, rounds=ROUNDS + 5)
    (directory / "config.toml").write_text(longer.to_toml())
    with pytest.raises(ValueError, match=r"shard-1\.npz cannot be read"):
        finish(longer, directory)
