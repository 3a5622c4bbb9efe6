"""The command that checks a method: check."""

import argparse
from typing import Any

from fedloom.algorithms import ALGORITHMS
from fedloom.experiments.changes import nested
from fedloom.experiments.plain import from_plain, parse
from fedloom.experiments.text import columns
from fedloom.hyperparameters import brief
from fedloom.testing import check_algorithm

CHECK = """\
Check a method against its mathematics, on quadratic clients whose optimum is known: docs/testing.md says what is
checked. Give it hyperparameters for which it converges where eigenvalues lie in [0.1, 1].

examples:
  fedloom check mine.py:Mine --algorithm.lr 0.5
  fedloom check feddyn --algorithm.alpha 0.3
"""


def add(commands: Any, complete: bool) -> None:
    """Add the command of this module."""
    c = commands.add_parser(
        "check",
        help="check a method, yours or ours, against its mathematics",
        description=CHECK,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    names = tuple(ALGORITHMS) if complete else None
    words = "FILE.py:NAME, or a name from `fedloom list algorithms`; --algorithm.FIELD sets a hyperparameter"
    c.add_argument("name", metavar="NAME", help=words, choices=names)
    c.set_defaults(do=_check, fields=True)


def _check(given: argparse.Namespace) -> int:
    for option in given.dotted:
        if not option.startswith("algorithm."):
            raise ValueError(f"check has no option --{option}; it takes --algorithm.FIELD, a field of the method.")
    fields = {name: parse(text) for name, text in given.dotted.items()}
    algorithm = from_plain(nested({"algorithm": given.name, **fields})["algorithm"], ALGORITHMS, "algorithm")
    try:
        found = check_algorithm(algorithm)
    except AssertionError as error:
        raise ValueError(str(error)) from error
    print(f"{brief(algorithm)}\n\n{columns(list(found.items()))}\n\npassed")
    return 0
