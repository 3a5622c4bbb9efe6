"""The ServerApp of a federation: it drives Flower's Grid directly, and writes to the server's directory."""

import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedloom.federation.desk import Arrived, Waited
from fedloom.federation.flower.grid import GridTransport
from fedloom.federation.flower.running import BOUND
from fedloom.federation.running import Serving
from fedloom.federation.showing import fail, starting
from fedloom.federation.terms import read_terms
from fedloom.federation.wire import Frame
from fedloom.places import cache_directory

app = ServerApp()


class OverGrid:
    """Frames over Flower's Grid, as a desk wants them."""

    def __init__(self, grid: Grid):
        self.transport = GridTransport(grid)

    def nodes(self) -> set[Any]:
        return self.transport.nodes()

    def push(self, frames: Sequence[tuple[Any, Frame]], ttl: float) -> None:
        self.transport.push_all([(node, frame.header, frame.body) for node, frame in frames], ttl)

    def pull(self) -> list[Arrived]:
        return [
            Arrived(found.node, None if found.header is None else Frame(found.header, found.body), found.error)
            for found in self.transport.pull()
        ]


def main(grid: Grid, context: Context) -> None:
    """Serve the federation of a directory until its last round."""
    directory = pathlib.Path(str(context.run_config["directory"]))
    starting(directory)
    try:
        _serve(grid, context, directory)
    except (ValueError, ImportError, Waited) as error:  # what a restart alone does not mend is told to whoever looks
        fail(directory, str(error))
        raise


app.main()(main)


def _serve(grid: Grid, context: Context, directory: pathlib.Path) -> None:
    sinks = tuple(filter(None, str(context.run_config.get("sinks", "")).split(",")))
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache_directory() / "programs"))
    terms = read_terms(directory)
    bound: Mapping[int, int] | None = None
    if terms.secure:
        known = json.loads((directory / BOUND).read_text())
        bound = {int(node): k for node, k in known.items()}
    Serving(terms, directory, OverGrid(grid), bound=bound, sinks=sinks, say=_say).go()


def _say(words: str) -> None:
    print(f"fedloom: {words}", flush=True)
