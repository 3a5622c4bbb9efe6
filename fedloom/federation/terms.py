"""The terms of a federation: one file, federation.toml, the same for the server and for all clients.

It has who takes part, where the server is, how long it waits, and the experiment as any run has it. Files of one's own
that the experiment names lie beside it, so that a folder can be copied to another machine.
"""

import dataclasses
import pathlib
import re
import shutil
import tomllib
from collections.abc import Mapping
from typing import Any

import tomli_w

from fedloom.experiments.definition import Experiment
from fedloom.experiments.own_files import absolute, digest, is_reference, path_of, references_in
from fedloom.experiments.settings import from_config
from fedloom.experiments.table_files import is_table
from fedloom.federation.agreement import Agreement
from fedloom.federation.engine import agreed, check_patience
from fedloom.federation.rounds import Patience
from fedloom.hyperparameters import nearest

FILE = "federation.toml"
PATIENCE = Patience()
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")  # of a client: it is also the name of a folder


@dataclasses.dataclass(frozen=True)
class Terms:
    """What everybody has agreed upon."""

    uid: str  # made once; it tells this federation from all others
    clients: tuple[str, ...]  # their names: client 0, 1, ...
    address: str  # HOST:PORT, at which clients find the server
    experiment: Experiment
    secure: bool = True  # TLS, and a key for each client
    buffer: int | None = None  # asynchronous: replies in an update of the server; None: synchronous rounds
    waits: Patience = PATIENCE

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9a-zA-Z-]{8,64}", self.uid):
            raise ValueError(f"uid must have 8 to 64 letters and digits, got {self.uid!r:.80}.")
        if len(self.clients) < 1 or len(set(self.clients)) < len(self.clients):
            raise ValueError("clients must be a list of different names, such as ['north', 'south'].")
        for name in self.clients:
            if not isinstance(name, str) or not NAME.fullmatch(name):
                raise ValueError(
                    f"clients: {name!r:.80} cannot be the name of a client; use letters, digits, dots, - and _."
                )
        host_and_port(self.address)
        check_patience(self.waits, len(self.clients))
        if self.buffer is not None and (not isinstance(self.buffer, int) or self.buffer < 1):
            raise ValueError(f"buffer must be a number of replies, got {self.buffer!r}.")

    def number(self, name: str) -> int:
        """The number of a client."""
        if name not in self.clients:
            raise ValueError(f"client: there is no client {name!r}.{nearest(name, self.clients)}")
        return self.clients.index(name)

    @property
    def agreement(self) -> Agreement:
        """What the server and a client compare when they meet: also the files of one's own, by their digests."""
        e, plain = self.experiment, _portable(self.experiment)
        shared = {name: plain[name] for name in sorted(plain) if name not in NOT_COMPARED}
        files = {pathlib.Path(path).name: digest(path) for path in own_files(e)}
        more = f"{shared} {files} clients {list(self.clients)} buffer {self.buffer}"
        return agreed(self.uid, e.algorithm, e.solver, more)

    def to_toml(self) -> str:
        waits = {name: value for name, value in self.waits._asdict().items() if value is not None}
        plain: dict[str, Any] = {
            "uid": self.uid,
            "clients": list(self.clients),
            "address": self.address,
            "secure": self.secure,
            **({} if self.buffer is None else {"buffer": self.buffer}),
            **waits,
            "experiment": dict(sorted(_portable(self.experiment).items(), key=lambda item: isinstance(item[1], dict))),
        }
        return tomli_w.dumps(plain)

    def write(self, folder: pathlib.Path) -> None:
        """The file, and the files of one's own beside it."""
        (folder / FILE).write_text(self.to_toml())
        for path in own_files(self.experiment):
            if pathlib.Path(path).parent != folder.resolve():
                shutil.copyfile(path, folder / pathlib.Path(path).name)


# What the experiment may differ in: how long it runs is the server's business, and so is where it is recorded.
NOT_COMPARED = {"rounds", "evaluate_every", "until", "plan", "engine", "shards", "buffer", "system", "cohort"}
WAITS = Patience._fields


def host_and_port(address: str) -> tuple[str, int]:
    """The two parts of HOST:PORT."""
    host, _, port = str(address).rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16 or "/" in host:
        raise ValueError(f"address must be HOST:PORT, such as example.org:8443, got {address!r:.80}.")
    return host.strip("[]"), int(port)


def own_files(experiment: Experiment) -> list[str]:
    """The files of one's own that the experiment names; two of the same name could not lie in one folder."""
    found = list(dict.fromkeys(path_of(text) for text in references_in(experiment.to_plain())))
    names = [pathlib.Path(path).name for path in found]
    if len(set(names)) < len(names):
        raise ValueError(f"Two files of the experiment have the same name: {', '.join(sorted(names))}; rename one.")
    return found


def _portable(experiment: Experiment) -> dict[str, Any]:
    """The experiment without the paths of a machine: files by their names."""

    def named(value: Any) -> Any:
        if is_reference(value):
            path, _, name = value.rpartition(":")
            return f"{pathlib.Path(path).name}:{name}"
        if isinstance(value, Mapping):
            return {key: named(entry) for key, entry in value.items()}
        return [named(entry) for entry in value] if isinstance(value, list) else value

    plain = named(experiment.to_plain())
    return {**plain, "task": pathlib.Path(plain["task"]).name} if is_table(plain["task"]) else plain


def _placed(value: Any, folder: pathlib.Path) -> Any:
    """References to files beside the terms, with their whole paths."""
    if is_reference(value):
        path, _, name = value.rpartition(":")
        return absolute(f"{folder / path}:{name}")
    if isinstance(value, Mapping):
        return {key: _placed(entry, folder) for key, entry in value.items()}
    return [_placed(entry, folder) for entry in value] if isinstance(value, list) else value


def read_terms(folder: pathlib.Path) -> Terms:
    """The terms of a folder, or of the file itself."""
    path = folder if folder.suffix == ".toml" else folder / FILE
    try:
        plain = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"{path} does not exist; `fedloom federate init` makes one.") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}.") from error
    known = {"uid", "clients", "address", "secure", "buffer", "experiment", *WAITS}
    for name in plain:
        if name not in known:
            raise ValueError(f"{path}: there is no field {name!r}.{nearest(name, known)}")
    if missing := {"uid", "clients", "address", "experiment"} - plain.keys():
        raise ValueError(f"{path}: {', '.join(sorted(missing))} must be given.")
    try:
        experiment = from_config(_placed(plain["experiment"], path.parent.resolve()))
        if not isinstance(plain["clients"], list):
            raise ValueError("clients must be a list of names.")
        waits = Patience(**{name: plain[name] for name in WAITS if name in plain})
        return Terms(
            uid=str(plain["uid"]),
            clients=tuple(plain["clients"]),
            address=str(plain["address"]),
            experiment=experiment,
            secure=plain.get("secure", True) is not False,
            buffer=plain.get("buffer"),
            waits=waits,
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
