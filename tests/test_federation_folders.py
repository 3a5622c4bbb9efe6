"""From `init` to the last round without a network: folders, terms, data of one's own, log, report, replay."""

import json
import os
import pathlib
import urllib.error
import urllib.request

import numpy as np
import pytest

import fedloom as fl
from fedloom.cli import main
from fedloom.experiments.finding import find_runs
from fedloom.federation.folders import client_folder
from fedloom.federation.monitoring import monitored
from fedloom.federation.running import Serving
from fedloom.federation.status import replayed, status_words
from fedloom.federation.terms import read_terms
from fedloom.federation.worker import party_of
from tests.federation_in_memory import Direct

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedloom[flower]'")

OWN = """
import numpy as np
import fedloom as fl

CENTERS = {"north": 0.0, "south": 2.0, "east": -1.0}


def rows(name):
    rng = np.random.default_rng(len(name))
    x = rng.normal(size=(30 + 5 * len(name), 3))
    return x, (x.sum(axis=1) > CENTERS[name] / 2).astype(int)


def nobody():
    raise RuntimeError("the patient's name is Smith")


x = np.zeros((6, 3))
task = fl.Task("own", fl.by_client(x, np.array([0, 1, 0, 1, 0, 1]), np.arange(6) % 3), fl.models.mlp(3, 4, 2))
"""
TORCH = """
import torch
import numpy as np
import fedloom as fl

torch.manual_seed(0)
module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
x = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
y = (x[:, 0] > 0).astype(int)
task = fl.Task(
    "torch",
    fl.by_client(x, y, np.arange(30) % 3),
    fl.models.from_torch(module, x[:2], compile=False),
    criterion=fl.metrics.from_torch(torch.nn.CrossEntropyLoss(reduction="none")),
)


def train(module, optimizer, batches):
    for x, y in batches:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(x), y.long()).backward()
        optimizer.step()


@fl.frozen
class Loop(fl.Solver):
    '''Its loop is in this file, which both sides have.'''

    of = fl.TorchLoop(lambda p: torch.optim.Adam(p, lr=0.05), train)
    offers = of.offers

    def check(self, federation):
        self.of.check(federation)

    def solve(self, *given):
        return self.of.solve(*given)
"""


def init(*options):
    pathlib.Path("own.py").write_text(OWN)
    given = ["--task", "own.py:task", "--clients", "north,south,east", "--rounds", "3", *options]
    return main(["federate", "init", "fed", *given])


def parties(folder="fed", data="own.py:rows", **more):
    terms = read_terms(pathlib.Path(folder) / "server")
    data = f"{pathlib.Path(data.rpartition(':')[0]).resolve()}:{data.rpartition(':')[2]}" if ":" in data else data
    return [party_of(client_folder(pathlib.Path(folder) / "clients" / n, data=data), **more) for n in terms.clients]


def serve(folder="fed", clients=None, **more):
    place = pathlib.Path(folder) / "server"
    clients = parties(folder) if clients is None else clients
    return Serving(read_terms(place), place, Direct(clients), **more)


def logged():
    return [json.loads(line) for line in pathlib.Path("fed/server/log.jsonl").read_text().splitlines()]


def close(*things):
    for thing in things:
        for one in thing if isinstance(thing, list) else [thing]:
            (one.store if hasattr(one, "store") else one.served).close()


def test_a_run_is_that_of_any_other_run(capsys):
    """The log, the report, the replay and the trained model; started again, it has ended."""
    assert init("--algorithm", "scaffold", "--cohort", "uniform", "--cohort.m", "2") == 0
    said = []
    clients = parties(say=said.append)
    serving = serve(clients=clients)
    serving.go()
    rows = logged()
    assert [row["round"] for row in rows] == [0, 1, 2, 3]
    assert all(np.isfinite(row["test accuracy"]) and row["evaluated"] == 1.0 for row in rows)
    assert rows[-1]["travelled up"] > rows[-1]["bytes up"] > 0
    assert all(party.over for party in clients)
    assert "train: sent" in " ".join(said)

    study = find_runs(["fed/server"])
    assert study.results[0].finished
    assert "scaffold" in fl.report.text(study)
    assert (
        replayed(
            pathlib.Path("fed/server"),
            [f"{n}={pathlib.Path('own.py').resolve()}:rows" for n in ("north", "south", "east")],
        ).first
        is None
    )
    predicted = fl.load_model("fed/server/model.safetensors").predict(np.zeros((2, 3)))
    assert set(predicted) <= {0, 1}
    words = "\n".join(map(str, status_words(pathlib.Path("fed/server"))))
    assert "The federation has ended." in words
    assert "north" in words
    assert "replies were counted" in str(status_words(pathlib.Path("fed/clients/north")))
    close(serving)
    for party in clients:
        party.over = False  # as of one that was away when the others were told
    again = serve(clients=clients)
    again.go()
    assert logged() == rows
    assert all(party.over for party in clients)
    close(again, clients)


def test_a_server_that_dies_between_a_round_and_its_evaluation_evaluates_it(monkeypatch):
    assert init() == 0
    clients = parties()
    broken = serve(clients=clients)
    with monkeypatch.context() as patched:
        patched.setattr(Serving, "_take", lambda self, record, w: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            broken.go()
    broken.journal.close()
    serving = serve(clients=clients)
    serving.go()
    assert [row["round"] for row in logged()] == [0, 1, 2, 3]
    close(serving, clients)


def test_a_federation_may_be_given_more_rounds():
    """In the server's terms; clients that were told that it is over are started again."""
    assert init() == 0
    clients = parties()
    serving = serve(clients=clients)
    serving.go()
    first = pathlib.Path("fed/server/model.safetensors").read_bytes()
    close(serving, clients)
    terms = pathlib.Path("fed/server/federation.toml")
    terms.write_text(terms.read_text().replace("rounds = 3", "rounds = 5"))
    clients = parties()
    serving = serve(clients=clients)
    serving.go()
    assert [row["round"] for row in logged()] == [0, 1, 2, 3, 4, 5]
    assert pathlib.Path("fed/server/model.safetensors").read_bytes() != first
    assert (
        replayed(
            pathlib.Path("fed/server"), [f"{p.name}={pathlib.Path('own.py').resolve()}:rows" for p in clients]
        ).first
        is None
    )
    close(serving, clients)


def test_clients_without_test_examples():
    """What nobody can measure is not in the log; the run goes on."""
    assert init() == 0
    own = pathlib.Path("own.py")
    own.write_text(
        own.read_text()
        + "\n\ndef all_rows(name):\n    x, y = rows(name)\n    return fl.by_client(x, y, np.zeros(len(y)), test=0)\n"
    )
    clients = parties(data="own.py:all_rows")
    serving = serve(clients=clients)
    serving.go()
    assert [row["round"] for row in logged()] == [0, 1, 2, 3]
    assert "test accuracy" not in logged()[-1]
    assert find_runs(["fed/server"]).results[0].finished
    close(serving, clients)


def test_of_an_error_inside_a_client_only_its_kind_leaves_it():
    """The sentence of a user's own error may name a patient."""
    assert init() == 0
    clients = parties()
    clients[0].own.evaluated = lambda w, setup: (_ for _ in ()).throw(RuntimeError("the patient's name is Smith"))
    serving = serve(clients=clients)
    serving.go()
    events = " ".join(words for _, words in serving.journal.events(1000))
    assert "RuntimeError" in events
    assert "Smith" not in events
    assert serving.rows[-1]["evaluated"] < 1
    close(serving, clients)


def test_folders_have_what_each_side_needs_and_no_more():
    assert init() == 0
    there = {str(p.relative_to("fed")) for p in pathlib.Path("fed").rglob("*") if p.is_file()}
    assert {"authority/ca.key", "server/server.key", "server/keys/north.pub", "clients/north/key"} <= there
    assert not [p for p in there if p.startswith(("server/", "clients/")) and p.endswith("ca.key")]
    assert not [p for p in there if p.startswith("clients/") and "server" in p]
    for secret in ("authority/ca.key", "server/server.key", "clients/north/key"):
        assert pathlib.Path("fed", secret).stat().st_mode & 0o077 == 0
    text = pathlib.Path("fed/server/federation.toml").read_text()
    assert os.getcwd() not in text  # no paths of this machine
    assert pathlib.Path("fed/clients/south/federation.toml").read_text() == text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("rounds = 3", "rounds = 3\nround = 4"), "no field 'round'|has no field"),
        (("deadline", "dedline"), "there is no field 'dedline'"),
        (('[\n    "north"', '[\n    "no/rth"'), "cannot be the name of a client"),
        (("127.0.0.1:8443", "127.0.0.1"), "address must be HOST:PORT"),
        (("minimum = 1", "minimum = 9"), "minimum must be a number of clients from 1 to 3"),
        (("patience = 3600.0", "patience = 1.0"), "patience must be at least the deadline"),
    ],
)
def test_terms_that_make_no_sense_are_refused(change, words):
    assert init() == 0
    file = pathlib.Path("fed/server/federation.toml")
    assert change[0] in file.read_text()
    file.write_text(file.read_text().replace(*change, 1))
    with pytest.raises(ValueError, match=words):
        serve(clients=[])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["init", "fed"], "fed already exists and is not empty"),
        (["init", "x", "--clients", "a,a"], "clients must be a list of different names"),
        (["init", "x", "--clients", "0"], "--clients must be names, or a number"),
        (["init", "x", "--cohort", "uniform", "--cohort.m", "9"], "m = 9 is larger than the population of 4 clients"),
        (["init", "x", "--asynchronous", "1", "--algorithm", "feddyn"], "cannot run asynchronously"),
        (["init", "x", "--address", "here"], "address must be HOST:PORT"),
        (["init", "x", "--algorithm", "nothing"], "There is no algorithm 'nothing'"),
        (["init", "x", "--task", "t.csv", "--label", "y", "--metrics", "nothing"], "metrics: there is no 'nothing'"),
        (["server", "nowhere"], "federation.toml does not exist"),
        (["client", "fed/clients/north"], "data: what does client 'north' train on"),
        (["client", "fed/clients/north", "--data", "x.docx", "--explain"], "neither FILE.py:NAME, nor a table"),
        (["client", "fed/clients/north", "--name", "nort"], "there is no client 'nort'. Did you mean 'north'"),
        (["status", "fed/server", "--replay"], "no journal"),
        (["status", "fed/server", "--data", "north=x"], "--data goes with --replay"),
    ],
)
def test_bad_input_is_a_sentence(arguments, words, capsys):
    assert init() == 0
    assert main(["federate", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_key_that_others_can_read_is_refused(capsys):
    assert init() == 0
    pathlib.Path("fed/clients/north/key").chmod(0o644)
    assert main(["federate", "client", "fed/clients/north", "--data", "own.py:rows"]) == 2
    assert "can be read by others" in capsys.readouterr().err
    pathlib.Path("fed/clients/north/key").unlink()
    assert main(["federate", "client", "fed/clients/north", "--data", "own.py:rows"]) == 2
    assert "Copy the whole folder" in capsys.readouterr().err


def test_other_files_of_ones_own_are_noticed():
    """A client that has another version of the task's file is refused when it says hello."""
    assert init("--patience", "0.5", "--deadline", "0.4") == 0
    own = pathlib.Path("fed/clients/north/own.py")
    own.write_text(own.read_text() + "# another\n")
    clients = parties()
    with pytest.raises(RuntimeError, match="have not come: client 0"):
        serve(clients=clients)
    close(clients)


def test_explain_says_what_leaves_a_client(capsys):
    assert init("--algorithm", "scaffold") == 0
    clients, serving = parties(), None
    serving = serve(clients=clients)
    serving.go()
    close(serving, clients)
    data = str(pathlib.Path("own.py").resolve()) + ":rows"
    assert main(["federate", "client", "fed/clients/north", "--data", data, "--explain"]) == 0
    said = capsys.readouterr().out
    size = fl.models.mlp(3, 4, 2).parameters
    assert f"w float64[{size}], {8 * size:,} bytes" in said
    assert f"c float64[{size}]" in said


def test_metrics_and_health_on_request():
    assert init() == 0
    clients = parties()
    serving = serve(clients=clients)
    serving.go()
    close(serving, clients)
    with monitored(pathlib.Path("fed/server"), 0) as port:

        def get(path):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                return answer.read().decode()

        assert "fedloom_round 3\n" in get("/metrics")
        assert "fedloom_log_test_accuracy" in get("/metrics")
        assert "well" in get("/health")
        with pytest.raises(urllib.error.HTTPError, match="404") as error:
            get("/else")
        error.value.close()


def test_a_torch_module_with_a_loop_of_its_own():
    pytest.importorskip("torch")
    pathlib.Path("net.py").write_text(TORCH)
    given = ["--task", "net.py:task", "--clients", "3", "--rounds", "2", "--algorithm", "fedavg"]
    assert main(["federate", "init", "fed", *given, "--solver", "net.py:Loop"]) == 0
    clients = parties(data="task")
    serving = serve(clients=clients)
    last = serving.go()
    assert last["train loss"] < serving.rows[0]["train loss"]
    again = replayed(pathlib.Path("fed/server"), [f"client-{k}=task" for k in range(3)])
    assert again.first is None
    close(serving, clients)
