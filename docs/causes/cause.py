"""A cause: a short paragraph, with what the record must show for it."""

from collections.abc import Callable
from typing import NamedTuple

from fedloom.reproductions import find
from fedloom.reproductions.reproduction import Claim, Values
from fedloom.reproductions.spread import FEW

NUMBERS = "the numbers"  # what a cause explains, if it is not a claim
NEAR = 0.1  # a mean that is near a printed number, in proportion to it


class Cause(NamedTuple):
    """Explains a claim that does not hold, or numbers that differ."""

    explains: str  # the words of a claim of the reproduction, or NUMBERS
    words: str  # what our runs show
    supported: Callable[[Values], bool]  # by these figures, of at least three seeds each; a missing one is a KeyError
    settings: tuple[str, ...] = ()  # of the claim that it explains; all if there are none

    def about(self, claim: Claim) -> bool:
        """Whether this is the claim that it explains."""
        return self.explains == claim.words and claim.setting in (self.settings or (claim.setting,))


# By the name of the reproduction.
Causes = dict[str, tuple[Cause, ...]]


def enough(values: Values) -> Values:
    """The figures that a cause may rest on."""
    return {key: of for key, of in values.items() if len(of) >= FEW}


def in_every_seed(name: str, words: str, values: Values) -> bool:
    """Whether there is such a claim, it holds, and without a seed in which it does not."""
    found = find(name)
    verdicts = [found.verdict(c, values) for c in found.claims if c.words == words]
    return bool(verdicts) and all(v.kind == "holds" and v.held == len(v.answers) for v in verdicts)


def kinds(name: str, words: str, values: Values) -> dict[str, str]:
    """What kind of verdict a claim has, by setting."""
    found = find(name)
    return {c.setting: found.verdict(c, values).kind for c in found.claims if c.words == words}
