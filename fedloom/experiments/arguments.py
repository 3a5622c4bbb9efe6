"""What functions accept in the place of a list, as the command line does: seeds=3, algorithms="fedavg,scaffold"."""

from collections.abc import Sequence
from typing import Any

from fedloom.experiments.following import Progress
from fedloom.experiments.notebook import Notebook, in_notebook
from fedloom.experiments.progress import Lines, Live

MOST_SEEDS = 10_000

Seeds = int | str | Sequence[int]
Names = str | Sequence[Any]


def seed_list(seeds: Seeds, what: str = "seeds") -> list[int]:
    """A number of seeds, from 0 on, or a list of them, also as text: 3, "3", [0, 5], "0,5"."""
    if isinstance(seeds, bool) or not isinstance(seeds, int | str | Sequence):
        raise ValueError(f"{what} must be a number of seeds or a list of seeds, got {seeds!r}.")
    single = isinstance(seeds, int) or (isinstance(seeds, str) and "," not in seeds)
    if isinstance(seeds, str):
        try:
            found = [int(n) for n in seeds.split(",") if n.strip()]
        except ValueError:
            found = []
        if not found:
            raise ValueError(
                f"{what} must be a number of seeds, or a list of seeds separated by commas; got {seeds!r}."
            )
    else:
        found = [seeds] if isinstance(seeds, int) else list(seeds)
    if not found:
        raise ValueError(f"{what} must list at least one seed.")
    if twice := [seed for seed in found if found.count(seed) > 1]:
        raise ValueError(f"{what} lists {twice[0]} twice.")
    if not single:
        return found
    if found[0] < 1:
        raise ValueError(f"{what} must be at least 1, got {seeds}.")
    if found[0] > MOST_SEEDS:
        raise ValueError(f"{what} must be at most {MOST_SEEDS:,}, got {seeds}.")
    return list(range(found[0]))


def name_list(names: Names) -> list[Any]:
    """Names, also as one text separated by commas."""
    return [n.strip() for n in names.split(",") if n.strip()] if isinstance(names, str) else list(names)


def reporter(progress: Progress | bool | None) -> Progress | None:
    """True stands for a bar in a notebook or at a terminal, and for plain lines elsewhere."""
    if not isinstance(progress, bool):
        return progress
    if not progress:
        return None
    if in_notebook():
        return Notebook()
    live = Live()
    return live if live.console.is_terminal else Lines()
