"""The folders of a federation: what `fedloom federate init` makes, and which file is where.

    authority/           ca.key signs certificates: keep it offline; ca.crt
    server/              federation.toml, ca.crt, server.crt, server.key, keys/NAME.pub; later the run's directory
    clients/NAME/        federation.toml, client.toml, ca.crt, key, key.pub; later the client's disk, store.db

A client's folder, and nothing else, is copied to the client's machine.
"""

import hashlib
import os
import pathlib
import shutil
import tempfile
import tomllib
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import tomli_w

from fedloom.experiments.run_directory import new_directory
from fedloom.federation import keys
from fedloom.federation.engine import checked_run
from fedloom.federation.own import check_experiment
from fedloom.federation.terms import Terms, host_and_port, read_terms

CLIENT = "client.toml"
AUTHORITY, SERVER, CLIENTS, KEYS = "authority", "server", "clients", "keys"
STORE, SOCKET, KEY = "store.db", "worker.sock", "key"
LONGEST = 90  # bytes of the name of a socket


def make(folder: pathlib.Path, terms: Terms, hosts: tuple[str, ...] = ()) -> None:
    """Make the folders of a new federation; hosts are more names and addresses of the server."""
    e, n = terms.experiment, len(terms.clients)
    check_experiment(e)
    given = (e.algorithm, e.solver, e.rounds, e.cohort, e.seed, "drop", terms.buffer)
    checked_run(*given, jnp.zeros(1), np.full(n, 1 / n))  # a cohort that is too large, say
    new_directory(folder)
    server, authority = folder / SERVER, folder / AUTHORITY
    server.mkdir()
    terms.write(server)
    if terms.secure:
        authority.mkdir(mode=0o700)
        (server / KEYS).mkdir()
        keys.make_authority(authority)
        certificate, key = keys.make_server_certificate(authority, (host_and_port(terms.address)[0], *hosts))
        shutil.move(certificate, server / certificate.name)
        shutil.move(key, server / key.name)
        shutil.copyfile(authority / "ca.crt", server / "ca.crt")
    for name in terms.clients:
        make_client(folder, terms, name)


def make_client(folder: pathlib.Path, terms: Terms, name: str) -> pathlib.Path:
    """The folder of one client."""
    own = folder / CLIENTS / name
    own.mkdir(parents=True, mode=0o700)
    terms.write(own)
    (own / CLIENT).write_text(tomli_w.dumps({"name": name}))
    if terms.secure:
        public = keys.make_client_key(own / KEY)
        shutil.copyfile(public, folder / SERVER / KEYS / f"{name}.pub")
        shutil.copyfile(folder / AUTHORITY / "ca.crt", own / "ca.crt")
    return own


class ClientFolder(NamedTuple):
    """A client's folder, as it was read."""

    path: pathlib.Path
    terms: Terms
    name: str
    data: str | None

    @property
    def k(self) -> int:
        return self.terms.number(self.name)

    @property
    def socket(self) -> pathlib.Path:
        """Where the worker listens: in the folder, or, if its name is too long for a socket, in one of its own."""
        here = self.path.resolve() / SOCKET
        if len(os.fsencode(here)) <= LONGEST:
            return here
        short = hashlib.sha256(os.fsencode(here)).hexdigest()[:12]
        place = pathlib.Path(tempfile.gettempdir()) / f"fedloom-{os.getuid()}-{short}"
        place.mkdir(mode=0o700, exist_ok=True)
        if place.stat().st_uid != os.getuid() or place.stat().st_mode & 0o077:
            raise ValueError(f"{place} belongs to somebody else; remove it, or use a shorter path than {self.path}.")
        return place / SOCKET


def client_folder(path: pathlib.Path, name: str | None = None, data: str | None = None) -> ClientFolder:
    """What a client's folder says; a name and data that are given count more."""
    terms, own = read_terms(path), dict[str, object]()
    if (path / CLIENT).exists():
        try:
            own = tomllib.loads((path / CLIENT).read_text())
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{path / CLIENT} is not a TOML file: {error}.") from error
    chosen = name or own.get("name")
    if not isinstance(chosen, str):
        raise ValueError(f"{path}: say which client this is, with --name, or name = ... in {CLIENT}.")
    given = data or own.get("data")
    if given is not None and not isinstance(given, str):
        raise ValueError(f"{path / CLIENT}: data must be a text, got {given!r}.")
    found = ClientFolder(path, terms, chosen, given)
    terms.number(chosen)
    if terms.secure:
        for file in ("ca.crt", KEY):
            if not (path / file).is_file():
                raise ValueError(
                    f"{path / file} is missing: this federation has TLS and a key for each client. Copy the whole "
                    f"folder {CLIENTS}/{chosen} that `fedloom federate init` made."
                )
        if (path / KEY).stat().st_mode & 0o077:
            raise ValueError(f"{path / KEY} can be read by others on this machine; run chmod 600 {path / KEY}.")
    return found
