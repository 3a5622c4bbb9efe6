"""The engine over real SuperNodes of Flower: the same numbers as `reference`."""

import contextlib
import os
import pathlib
import shutil
import tempfile
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom.federation.replay import replay
from fedloom.testing import relative_difference
from tests.federations import last
from tests.on_flower_cases import ROUNDS, SEED, SHORT, W, federations, party, uid

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedloom[flower]'")

ROOT = pathlib.Path(__file__).parent.parent
SERVER_APP = """
from flwr.serverapp import ServerApp

app = ServerApp()


@app.main()
def main(grid, context):
    from tests.on_flower_cases import run

    run(grid, context.run_config["directory"], context.run_config["names"].split(","))
"""


def app_in(directory):
    """FedLoom's app, with another ServerApp."""
    from fedloom.federation.flower import processes

    app = processes.write_app(directory)
    (app / "fedloom_app" / "server_app.py").write_text(SERVER_APP)
    config = (app / "pyproject.toml").read_text()
    (app / "pyproject.toml").write_text(config + '\nnames = ""\n')
    return app


@contextlib.contextmanager
def three_nodes(directory, names):
    """A SuperLink and three SuperNodes, whose workers are threads of this process."""
    from fedloom.federation.flower import processes
    from fedloom.federation.flower.shim import BODY_LIMIT
    from fedloom.federation.worker import serve
    from tests.flower_processes import free_port

    home, port, over = directory / "home", free_port(), threading.Event()
    home.mkdir()
    processes.write_connection(home, port, None)
    cache = {"JAX_COMPILATION_CACHE_DIR": str(ROOT / ".jax_cache"), "XLA_FLAGS": os.environ["XLA_FLAGS"]}
    env = processes.environment(home, {"JAX_ENABLE_X64": "1", "PYTHONPATH": str(ROOT), **cache})
    with contextlib.ExitStack() as stack:
        command = processes.superlink_command(directory / "superlink.db", "127.0.0.1", port, None, BODY_LIMIT)
        stack.enter_context(processes.Supervised("superlink", command, env, directory / "superlink.log"))
        for k in range(3):
            parties = {uid(name): party(directory, name, k) for name in names}
            path = directory / f"{k}.sock"
            thread = threading.Thread(target=serve, args=(path, parties), kwargs={"goes_on": lambda: not over.is_set()})
            thread.start()
            stack.callback(lambda thread=thread, parties=parties: _ended(thread, parties, over))
            command = processes.node_command(f"127.0.0.1:{port}", path, None, directory / f"{k}.json", BODY_LIMIT)
            stack.enter_context(processes.Supervised(f"node{k}", command, env, directory / f"node{k}.log"))
        yield home


def _ended(thread, parties, over):
    over.set()
    thread.join()
    for one in parties.values():
        one.store.close()


def run(names, seconds):
    """The directory of federations that a ServerApp has run over three SuperNodes."""
    from fedloom.federation.flower import processes

    directory = pathlib.Path(tempfile.mkdtemp(prefix="fl"))  # short, for sockets
    with three_nodes(directory, names) as home:
        end, app = time.monotonic() + seconds, app_in(directory / "app")
        while True:
            try:
                processes.start_run(home, app, {"directory": str(directory), "names": ",".join(names)})
                break
            except processes.FlowerError:
                assert time.monotonic() < end
                time.sleep(0.5)
        while not all((directory / name / "last.npz").exists() for name in names):
            log = (directory / "superlink.log").read_text()
            assert time.monotonic() < end, log[-3000:]
            assert "Traceback" not in log, log[-3000:]
            time.sleep(0.2)
    return directory


def check(directory, name):
    """The server's state, the counters and the memories are those of `reference`."""
    from fedloom.federation.journal import Journal
    from fedloom.federation.work import Objectives

    algorithm, solver, federation, rule, buffer = federations()[name]
    server = jax.tree.map(jnp.asarray, algorithm.init(jnp.asarray(W)))
    with np.load(directory / name / "last.npz") as found:
        leaves = [found[f"server {i}"] for i in range(len(jax.tree.leaves(server)))]
        counters, traffic = found["counters"].tolist(), found["traffic"].tolist()
    server = jax.tree.unflatten(jax.tree.structure(server), leaves)
    journal = Journal(directory / name / "journal.db")
    again = replay(journal, algorithm, solver, {k: Objectives(federation, k) for k in range(3)})
    journal.close()
    assert again.difference < 1e-12
    if buffer is not None:
        start, optimum = np.linalg.norm(W - federation.optimum()), federation.optimum()
        assert np.linalg.norm(server.w - optimum) < 0.01 * start  # on its way; in memory it gets to 1e-6
        left, _ = algorithm.invariant(server, algorithm.init_client(jnp.asarray(W)))
        memories = [again.memories.get(k, algorithm.init_client(jnp.asarray(W))) for k in range(3)]
        right = sum(p * algorithm.invariant(server, m)[1] for p, m in zip(federation.weights, memories, strict=True))
        np.testing.assert_allclose(left, right, atol=1e-12)
        return
    one = last(fl.reference, algorithm, federation, solver, W, ROUNDS, cohort=rule, seed=SEED)
    assert relative_difference(server, one.server) < 1e-12
    assert counters == list(one.counters)
    assert traffic[0] > one.counters.bytes_down
    assert sorted(again.memories) == sorted(one.clients)
    for k in one.clients:
        assert relative_difference(again.memories[k], one.clients[k]) < 1e-12


@pytest.fixture(scope="module")
def short():
    directory = run(SHORT, 240)
    yield directory
    shutil.rmtree(directory)


@pytest.mark.parametrize("name", SHORT)
def test_equals_reference(short, name):
    """Partial cohorts, two exchanges, memories, minibatches of ragged clients; asyncFedDR reaches the optimum."""
    check(short, name)


@pytest.fixture(scope="module")
def others():
    directory = run([name for name in federations() if name not in SHORT], 600)
    yield directory
    shutil.rmtree(directory)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in federations() if name not in SHORT])
def test_every_other_method_equals_reference(others, name):
    check(others, name)
