"""A federation on one machine, to look at: a server and four clients, five processes with TLS, and its simulation."""

import csv
import dataclasses
import os
import pathlib
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fedloom.data.files import locate
from fedloom.data.sources.heart import COLUMNS, HOSPITALS
from fedloom.experiments.finding import find_runs
from fedloom.experiments.run_directory import new_directory
from fedloom.experiments.settings import experiment
from fedloom.experiments.study import Study, run_all
from fedloom.federation.engine import JOURNAL
from fedloom.federation.folders import CLIENTS, SERVER, client_folder, make
from fedloom.federation.journal import Journal
from fedloom.federation.one_client import together
from fedloom.federation.own import task_of
from fedloom.federation.own_data import own_rows
from fedloom.federation.rounds import Patience
from fedloom.federation.terms import Terms, read_terms
from fedloom.tables.preparation import Preparation

CLIENTS_OF_DIGITS = 4
SIMULATION = "simulation"


def demo(path: pathlib.Path, rounds: int, algorithm: str, digits: bool, say: Callable[[str], None]) -> Study:
    """Run it, and its simulation; the study has both."""
    new_directory(path)
    names = {} if digits else _hospitals(path)  # the clients, and the data of each
    fields: dict[str, Any] = {"rounds": rounds, "evaluate_every": 1, "cohort": "everyone"}
    if names:
        made = experiment("patients.csv", algorithm, label="disease", client="hospital", **fields)
    else:
        made = experiment("digits", algorithm, **fields)
        names = {f"client-{k}": "task" for k in range(CLIENTS_OF_DIGITS)}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    waits = Patience(deadline=60.0, minimum=min(2, len(names)), patience=300.0)
    terms = Terms(secrets.token_hex(8), tuple(names), address, made, waits=waits)
    make(path / "federation", terms)
    for name, what in names.items():
        with (path / "federation" / CLIENTS / name / "client.toml").open("a") as file:
            file.write(f"data = {str(what)!r}\n")
    say(f"{path / 'federation'}: a server and {len(names)} clients at {address}, with TLS and a key for each client")
    _run(path / "federation", list(names), path, say)
    say("the same federation, simulated in this process")
    _simulated(path)
    server = path / "federation" / SERVER
    study = find_runs([server, path / SIMULATION])
    task = next(r.about["task"] for r in study.results if r.experiment.engine == "flower")
    named = [
        dataclasses.replace(
            r,
            name="federation" if r.experiment.engine == "flower" else SIMULATION,
            about={**r.about, "task": task},  # the same rows: curves in one picture
        )
        for r in study.results
    ]
    return dataclasses.replace(study, results=named, title="a federation beside its simulation")


def _hospitals(path: pathlib.Path) -> dict[str, str]:
    """A table for each of the four hospitals of the heart disease data, if these are at hand."""
    try:
        files = {hospital: locate(f"heart_disease/processed.{hospital}.data") for hospital in HOSPITALS}
    except FileNotFoundError:
        return {}
    found = {}
    for name, file in sorted(files.items()):
        target = path / f"{name}.csv"
        with target.open("x", newline="") as opened:
            table = csv.writer(opened)
            table.writerow([*list(COLUMNS)[:-1], "disease"])  # the last column is its grade
            for row in csv.reader(file.read_text().split()):
                table.writerow([*row[:-1], "no" if row[-1] == "0" else "yes"])
        found[name] = str(target.resolve())
    return found


def _run(folder: pathlib.Path, names: list[str], logs: pathlib.Path, say: Callable[[str], None]) -> None:
    """The five processes, until the server has ended."""
    command = [sys.executable, "-m", "fedloom.cli", "federate"]
    with _started([*command, "server", str(folder / SERVER)], logs / "server.log") as server:
        clients = [_started([*command, "client", str(folder / CLIENTS / name)], logs / f"{name}.log") for name in names]
        opened = [client.__enter__() for client in clients]
        try:
            heard = 0
            while server.poll() is None:
                time.sleep(0.3)
                text = (logs / "server.log").read_text(errors="replace")
                whole = text[heard : text.rfind("\n") + 1]
                for line in whole.splitlines():
                    if line[2:3] == ":" and "round" in line:
                        say(line.partition(" ")[2])
                heard += len(whole)
            for process in opened:  # they have been told that it is over
                try:
                    process.wait(15)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            for client in clients:
                client.__exit__(None, None, None)
        if server.returncode:
            tail = (logs / "server.log").read_text(errors="replace").strip().splitlines()[-1:]
            raise ValueError(f"The server has ended with code {server.returncode}: {' '.join(tail)}")


@contextmanager
def _started(command: list[str], log: pathlib.Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=dict(os.environ)
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _simulated(path: pathlib.Path) -> None:
    """The same rows, weights and initial model in one process, as if all data were in one place."""
    server = path / "federation" / SERVER
    terms = read_terms(server)
    journal = Journal(server / JOURNAL)
    setup = journal.get("setup")
    journal.close()
    assert setup is not None
    h, e = setup.header, terms.experiment
    rows = {}
    for k, name in enumerate(terms.clients):
        own = own_rows(str(client_folder(path / "federation" / CLIENTS / name).data), e, k, name, e.seed)
        rows[name] = own.prepared(Preparation.from_plain(h["preparation"])) if own.table is not None else own
    task = task_of(e, h["preparation"])
    assert task is not None
    data = {name: own.data for name, own in rows.items() if own.data is not None}
    whole = dataclasses.replace(task, name=f"{task.name}-federation", data=together(data))
    # A table's columns have been used; a model of one's own is in the task.
    run = dataclasses.replace(e, task=whole, label=None, client=None, leave_out=None, split_column=None, model=None)
    run_all([(SIMULATION, run)], path / SIMULATION)
