"""Where a setting comes from: a paper, a search of ours, or nobody's tuning."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Paper:
    """What a paper ran."""

    citation: str

    kind = "paper"

    @property
    def words(self) -> str:
        """One short sentence."""
        return f"paper: {self.citation}"

    @property
    def short(self) -> str:
        """What a sentence about a change begins with."""
        return "the paper's"


@dataclasses.dataclass(frozen=True)
class Tuned:
    """The best of several points, found by `fedloom tune`.

    Args:
        points: how many were tried, the same number for every method.
        seeds: runs of each point; a comparison uses other seeds.
        metric: what decided, for example "validation accuracy".
        over: the values tried of each field.
        edges: the fields whose best value is the smallest or the largest one tried.
        limits: the fields whose best value is an end of what the field may be, so that nothing lies beyond.
    """

    points: int
    seeds: int
    metric: str
    over: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict, hash=False)
    edges: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()

    kind = "tuned"

    @property
    def words(self) -> str:
        """One short sentence."""
        found = f"tuned here: {self.points} points x {self.seeds} seeds on {self.metric}"
        if self.edges:
            found += f"; best at the edge of the grid: {', '.join(self.edges)}"
        return found + (f"; at the limit of its domain: {', '.join(self.limits)}" if self.limits else "")

    @property
    def short(self) -> str:
        """What a sentence about a change begins with."""
        return "tuned here"

    @property
    def grid(self) -> str:
        """The values that were tried."""
        return "; ".join(f"{field} {', '.join(f'{v:g}' for v in values)}" for field, values in self.over.items())


@dataclasses.dataclass(frozen=True)
class Untuned:
    """Chosen without a search: a start for one's own."""

    kind = "untuned"
    words = "untuned: defaults"
    short = "defaults"


Origin = Paper | Tuned | Untuned
UNTUNED = Untuned()
