"""What papers print: which number of a run was measured, where it stands, and its value for each algorithm."""

import dataclasses
from collections.abc import Mapping

# What can be counted until a target is reached. Models and MiB are those of one client that takes part in every round:
# the models it sends, and what it sends and receives.
COUNTED = ("rounds", "models", "MiB", "simulated seconds")


@dataclasses.dataclass(frozen=True)
class Measure:
    """One number of a run: a metric at the end, or what it cost to bring a metric to a target."""

    metric: str  # as experiments log it: "train loss", "test accuracy", "own train loss"
    target: float | None = None  # in the metric's unit: 0.845 for an accuracy of 84.5%
    counted: str | None = None  # until the target: one of COUNTED
    last: int = 10  # without a target: the mean over so many rounds at the end
    scale: float = 1.0  # without a target: papers print the metric times this, for example 100 for percent
    best: bool = False  # without a target: the best of all evaluations instead, as theorems bound it

    def __post_init__(self) -> None:
        if self.target is None and self.counted is not None:
            raise ValueError(f"Counting {self.counted} needs a target for {self.metric!r} at which to stop.")
        if self.target is not None and self.counted not in COUNTED:
            raise ValueError(f"counted must be one of {', '.join(COUNTED)} for a target, got {self.counted!r}.")
        if self.last < 1:
            raise ValueError(f"last must be a positive number of rounds, got {self.last!r}.")

    @property
    def larger_is_better(self) -> bool:
        """Whether larger values of the metric are better, by its name: there may be no run to ask."""
        return any(word in self.metric for word in ("accuracy", "recall", "auc"))

    @property
    def words(self) -> str:
        """What is measured, in words."""
        if self.target is not None:
            return f"{self.counted} to {self.metric} {self.target:g}"
        times = "" if self.scale == 1 else f"{self.scale:g} x "
        if self.best:
            return f"{times}{self.metric}, the best of all evaluations"
        when = "after the last round" if self.last == 1 else f"mean of the last {self.last} rounds"
        return f"{times}{self.metric}, {when}"

    @property
    def failed(self) -> str:
        """What a run is called that has no finite number."""
        return "diverged" if self.target is None else "not reached"


@dataclasses.dataclass(frozen=True)
class Reported:
    """Figures that a paper prints, one for each algorithm."""

    where: str  # in the paper: "table 2"
    variant: str  # of the task's settings
    measure: Measure
    values: Mapping[str, float]  # by algorithm; inf if the target was not reached

    @property
    def words(self) -> str:
        """Where it stands and what is measured, in words."""
        return f"{self.where}, {self.variant}: {self.measure.words}"
