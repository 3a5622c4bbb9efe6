"""The command `federate`: a real federation, from its folders to its last round."""

import argparse
import contextlib
import pathlib
import secrets
import sys
import time
from typing import Any

from fedloom.cli.flags import add_fields, changes
from fedloom.cli.output import conclude, out_directory
from fedloom.experiments.arguments import name_list
from fedloom.experiments.finding import find_runs
from fedloom.experiments.settings import experiment
from fedloom.experiments.table_files import is_table
from fedloom.experiments.text import columns
from fedloom.federation import need_flower
from fedloom.federation.rounds import Patience
from fedloom.sinks import SINKS, sink

FEDERATE = """\
Train over clients that keep their data: each is a process of its own, on its own machine, and Flower carries the
messages. Everybody may be killed at any moment; who is started again goes on.

  fedloom federate demo                               five processes on this machine, with TLS: table and report
  fedloom federate init hospitals --task patients.csv --label disease --clients north,south --address HOST:8443
  fedloom federate server hospitals/server            on the server's machine
  fedloom federate client hospitals/clients/north --data patients.csv      on each client's, after copying its folder
  fedloom federate status hospitals/server            who is there, the round, the loss, who is left out and why
"""
CLOCK = "%H:%M:%S"


def add(commands: Any, complete: bool) -> None:
    """Add the command of this module."""
    raw = argparse.RawDescriptionHelpFormatter
    f = commands.add_parser(
        "federate",
        help="train over clients on other machines, which keep their data",
        description=FEDERATE,
        formatter_class=raw,
        allow_abbrev=False,
    )
    actions = f.add_subparsers(dest="action", required=True, metavar="action")

    i = actions.add_parser("init", help="make the folders of a new federation, with its keys", allow_abbrev=False)
    i.add_argument("directory", metavar="DIR", help="a new folder")
    i.add_argument("--task", metavar="TASK", help="a name, FILE.py:NAME, or for tables any name that ends with .csv")
    i.add_argument("--clients", metavar="A,B,C", help="the names of the clients, or how many there are")
    i.add_argument("--address", metavar="HOST:PORT", help="at which clients find the server (default 127.0.0.1:8443)")
    i.add_argument("--host", action="append", default=[], metavar="NAME", help="another name or address of the server")
    i.add_argument("--seed", type=int, metavar="N", help="determines the initial model, the cohorts and minibatches")
    i.add_argument("--asynchronous", type=int, metavar="N", help="update the model with every N replies; no rounds")
    i.add_argument("--deadline", type=float, metavar="S", help=f"seconds for a reply (default {Patience().deadline:g})")
    i.add_argument("--minimum", type=int, metavar="N", help="replies that an exchange needs (default 1)")
    i.add_argument("--enough", type=int, metavar="N", help="replies that end an exchange; draw more clients than that")
    i.add_argument("--patience", type=float, metavar="S", help="seconds without enough clients, until the server ends")
    safety = i.add_mutually_exclusive_group()
    safety.add_argument("--tls", action="store_true", help="make certificates and keys (the default)")
    safety.add_argument("--insecure", action="store_true", help="NO TLS AND NO KEYS: for trials on one machine only")
    add_fields(i, complete, leave_out=("engine", "buffer", "shards", "plan", "split", "own_models", "seed"))
    i.set_defaults(do=_init)

    s = actions.add_parser("server", help="run the server until the last round", allow_abbrev=False)
    s.add_argument("directory", metavar="DIR", help="the folder `server` that init made")
    s.add_argument("--sink", action="append", default=[], metavar="S", help=f"also send rows to {', '.join(SINKS)}")
    s.add_argument("--metrics", type=int, metavar="PORT", help="serve /metrics (Prometheus) and /health on this port")
    s.add_argument("--quiet", action="store_true", help="do not report progress")
    s.add_argument("--json", action="store_true", help="print rows and table as lines of JSON")
    s.set_defaults(do=_server)

    c = actions.add_parser("client", help="take part until the federation ends", allow_abbrev=False)
    c.add_argument("directory", metavar="DIR", help="the client's own folder")
    c.add_argument("--name", metavar="N", help="which client this is (default: as its folder says)")
    c.add_argument(
        "--data",
        metavar="D",
        help="FILE.py:NAME, a function that returns (x, y); a table; or task, the task's own (default: see its folder)",
    )
    c.add_argument(
        "--explain", action="store_true", help="only show what would leave this client: names, shapes, bytes"
    )
    c.set_defaults(do=_client)

    t = actions.add_parser("status", help="who is there, the round, the loss, who is left out", allow_abbrev=False)
    t.add_argument("directory", metavar="DIR", help="the folder of the server, or of a client")
    t.add_argument("--json", action="store_true", help="print it as JSON")
    t.add_argument("--replay", action="store_true", help="compute the whole run again, where all data are at hand")
    t.add_argument(
        "--data", action="append", default=[], metavar="NAME=D", help="with --replay: the data of a client; repeatable"
    )
    t.set_defaults(do=_status)

    d = actions.add_parser("demo", help="five processes on this machine, with TLS", allow_abbrev=False)
    d.add_argument("--out", metavar="DIR", help="a new directory (default: the next number in runs/)")
    d.add_argument("--rounds", type=int, default=10, metavar="N", help="default 10")
    d.add_argument("--algorithm", default="scaffold", metavar="A", help="default scaffold")
    d.add_argument("--digits", action="store_true", help="four clients of digits, even if heart disease is at hand")
    d.add_argument("--quiet", action="store_true", help="do not report progress")
    d.add_argument("--json", action="store_true", help="print rows and table as lines of JSON")
    d.set_defaults(do=_demo)


def _say(words: str) -> None:
    print(f"{time.strftime(CLOCK)} {words}", file=sys.stderr, flush=True)


def _asked(given: Any, question: str, usual: str) -> str:
    """An option, or what somebody at a terminal answers; without a terminal, the usual."""
    if given is not None:
        return str(given)
    if not sys.stdin.isatty():
        return usual
    return input(f"{question} [{usual}]: ").strip() or usual


def _init(given: argparse.Namespace) -> int:
    need_flower()
    from fedloom.federation.folders import make
    from fedloom.federation.terms import Terms

    task = _asked(given.task, "Task: a name, FILE.py:NAME, or a table such as patients.csv", "digits")
    fields = changes(given)
    algorithm = _asked(fields.pop("algorithm", None), "Method", "scaffold")
    if is_table(task):
        fields["label"] = _asked(fields.get("label"), "Column of the table that is to be predicted", "label")
        fields.setdefault("client", "client")  # of a table that nobody has as a whole
    if given.rounds is None and sys.stdin.isatty():
        fields["rounds"] = int(_asked(None, "Rounds", "20"))
    clients = _names(_asked(given.clients, "Clients: names, or how many", "4"))
    address = _asked(given.address, "Address at which clients find the server", "127.0.0.1:8443")
    if given.seed is not None:
        fields["seed"] = given.seed
    fields.setdefault("cohort", "everyone")  # a task's own cohorts are those of its simulated clients
    waits = {name: getattr(given, name) for name in Patience._fields if getattr(given, name) is not None}
    made = experiment(task, algorithm, **fields)
    terms = Terms(
        uid=secrets.token_hex(8),
        clients=tuple(clients),
        address=address,
        experiment=made,
        secure=not given.insecure,
        buffer=given.asynchronous,
        waits=Patience(**waits),
    )
    folder = pathlib.Path(given.directory)
    make(folder, terms, tuple(given.host))
    if not terms.secure:
        print("NO TLS AND NO KEYS: whoever reaches the server can take part and read models. For trials only.")
    print(f"{folder}: {made.base_task().name}, {algorithm}, {made.rounds} rounds, {len(clients)} clients")
    print(f"  on the server's machine:  fedloom federate server {folder / 'server'}")
    print(f"  copy each client's folder to its machine, and there:  fedloom federate client {clients[0]} --data ...")
    if terms.secure:
        print(f"  keep {folder / 'authority'} offline: its key can make certificates")
    return 0


def _names(text: str) -> list[str]:
    """Names of clients, or how many there are."""
    if not text.strip().isdecimal():
        return [str(name) for name in name_list(text)]
    n = int(text)
    if not 1 <= n <= 10_000:
        raise ValueError(f"--clients must be names, or a number from 1 to 10,000, got {text!r}.")
    return [f"client-{k}" for k in range(n)]


def _server(given: argparse.Namespace) -> int:
    need_flower()
    from fedloom.federation.flower.running import serve
    from fedloom.federation.terms import read_terms

    folder = pathlib.Path(given.directory)
    terms = read_terms(folder)
    for name in given.sink:
        sink(name)
    with _metrics(folder, given.metrics):
        serve(folder, terms, (lambda words: None) if given.quiet else _say, tuple(given.sink))
    return conclude(find_runs([folder]), given, folder)


@contextlib.contextmanager
def _metrics(folder: pathlib.Path, port: int | None) -> Any:
    if port is None:
        yield
        return
    from fedloom.federation.monitoring import monitored

    with monitored(folder, port):
        yield


def _client(given: argparse.Namespace) -> int:
    need_flower()
    from fedloom.federation.flower.running import take_part
    from fedloom.federation.folders import client_folder
    from fedloom.federation.worker import party_of

    folder = client_folder(pathlib.Path(given.directory), given.name, given.data)
    if given.explain:
        print("\n".join(party_of(folder).explained()))
        return 0
    if folder.data is None:
        party_of(folder)  # raises: it needs data
    return take_part(folder, _say)


def _status(given: argparse.Namespace) -> int:
    from fedloom.federation.status import replayed, server_status, status_words

    folder = pathlib.Path(given.directory)
    if given.replay:
        found = replayed(folder, given.data)
        print(found.words)
        return 0 if found.first is None else 3
    if given.data:
        raise ValueError("--data goes with --replay.")
    if given.json:
        print(server_status(folder).to_json())
        return 0
    for part in status_words(folder):
        print(part if isinstance(part, str) else columns(part))
    return 0


def _demo(given: argparse.Namespace) -> int:
    need_flower()
    from fedloom.cli.output import new_directory
    from fedloom.federation.demo import demo

    path = new_directory(given, "federation") if given.out is None else out_directory(given.out)
    study = demo(path, given.rounds, given.algorithm, given.digits, (lambda words: None) if given.quiet else _say)
    return conclude(study, given, path)
