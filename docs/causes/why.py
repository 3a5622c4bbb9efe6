"""Why a reproduction came out as it did: causes, how far our numbers are from the paper's, and what has no cause."""

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

from docs.causes import NUMBERS, shown
from docs.causes.cause import NEAR
from fedloom.reproductions.reproduction import Line, Reproduction, Values
from fedloom.reproductions.spread import FEW, Spread, Verdict

ROUNDED = 0.005  # printed numbers have two or three digits


def beside(r: Reproduction, values: Values) -> str:
    """How near the paper's numbers are to our means; empty if it prints few.

    A mean of those seeds that get there is none of all of them, so it is not compared.
    """
    pairs = [(line, Spread(tuple(of.values())), printed) for line, of, printed in _printed(r, values)]
    if len(pairs) < 2:
        return ""
    whole = [(line, of.mean, p) for line, of, p in pairs if len(of.finite) == len(of.values) and math.isfinite(p)]
    counted = all(line.measure.target is not None for line, _, _ in pairs)
    words = _near(len(pairs), whole) if counted else _apart(whole)
    rest = len(pairs) > len(whole)
    return f"{words} The others cannot be compared: some seed of ours, or the paper, has no number." if rest else words


def _near(all_: int, whole: Sequence[tuple[Line, float, float]]) -> str:
    """Of counts: how many are near, and on which side the others are."""
    apart = [mean / printed - 1 for _, mean, printed in whole]
    below, above = sum(d < -NEAR for d in apart), sum(d > NEAR for d in apart)
    near = len(apart) - below - above
    return (
        f"Our means are within {NEAR:.0%} of {near} of {all_} printed numbers, below {below} of them and above {above}."
    )


def _apart(whole: Sequence[tuple[Line, float, float]]) -> str:
    """Of accuracies and losses, which are near each other whatever the method: the differences, and the order."""
    apart = sorted(mean - printed for _, mean, printed in whole)
    words = f"Our means minus the printed numbers: {apart[0]:+.2g} to {apart[-1]:+.2g}."
    for setting in dict.fromkeys(line.setting for line, _, _ in whole):
        of = [(line.method, mean, printed) for line, mean, printed in whole if line.setting == setting]
        ours, papers = ([m for m, *_ in sorted(of, key=itemgetter(i), reverse=True)] for i in (1, 2))
        if len(of) > 2:
            same = " is the paper's" if ours == papers else f" is not the paper's, {', '.join(papers)}"
            words += f" Our order from the largest, {', '.join(ours)},{same}."
    return words


def why(r: Reproduction, values: Values) -> list[str]:
    """How many of the paper's numbers are others, the causes that the figures support, and what is left without any."""
    verdicts = {claim: r.verdict(claim, values) for claim in r.claims}
    failed = [claim for claim, verdict in verdicts.items() if verdict.kind == "does not hold"]
    doubtful = [claim for claim, verdict in verdicts.items() if claim in failed or _doubtful(verdict)]
    causes = [c for c in shown(r.name, values) if c.explains == NUMBERS or any(map(c.about, doubtful))]
    unexplained = dict[str, list[str]]()
    for claim in failed:
        if not claim.ours and not any(c.about(claim) for c in causes):
            unexplained.setdefault(claim.words, []).append(claim.setting)
    open_ = [f"“{words}”{_settings(settings)}" for words, settings in unexplained.items()]
    numbers, silent = _numbers(r, values)
    if not causes and not open_ and not numbers and not silent:
        return []
    lines = ["", "Why:", ""]
    for c in causes:
        undecided = c.explains != NUMBERS and not any(map(c.about, failed))
        about = "The numbers" if c.explains == NUMBERS else f"“{c.explains}”" + " (cannot be said)" * undecided
        lines.append(f"- {about}: {c.words}")
    lines += [f"- {words}: why this does not hold is not known." for words in open_]
    explained = any(c.explains == NUMBERS for c in causes)
    rest = "what of this is not explained above is not known" if explained else "why is not known"
    lines += [f"- The numbers: {numbers}; {rest}."] * bool(numbers)
    return lines + [f"- The numbers: {silent}."] * bool(silent)


def _doubtful(verdict: Verdict) -> bool:
    """It cannot be said, and no more seeds are for it than against it."""
    return verdict.kind == "cannot be said" and verdict.decided >= FEW and 2 * verdict.held <= verdict.decided


def _numbers(r: Reproduction, values: Values) -> tuple[str, str]:
    """How many of the paper's numbers are not such as one more seed of ours would give, and of how many it is open.

    Each empty if there are none.
    """
    found = [differs(of.values(), printed) for _, of, printed in _printed(r, values)]
    compared = [far for far in found if far is not None]
    words = "printed ones are outside of where one more seed of ours would be, 19 times in 20"
    far = f"{sum(compared)} of {len(compared)} {words}" if any(compared) else ""
    of_few = len(found) - len(compared)
    words = "printed ones cannot be judged: ours have fewer than three seeds, or in some of them no number"
    return far, f"{of_few} of {len(found)} {words}" if of_few else ""


def _printed(r: Reproduction, values: Values) -> list[tuple[Line, Mapping[int, float], float]]:
    """Lines with our figures and the paper's number, of all that have both.

    Those that follow from others are left out: seconds and bytes of so many rounds.
    """
    lines = [line for line in r.lines if not line.beside and line.combined is None and line.measure.counted != "MiB"]
    own = [(line, values.get((line.setting, line.method), {}), line.reported) for line in lines]
    return [(line, of, printed) for line, of, printed in own if of and printed is not None]


def differs(ours: Iterable[float], printed: float | None) -> bool | None:
    """Whether a printed number is not such as one more seed would give; None if our seeds do not say.

    They do not if there are fewer than three, or if some of them have a number and others have none. What no seed of
    ours reaches, but the paper does, is another number; and the other way round.
    """
    spread = Spread(tuple(ours))
    if printed is None or len(spread.values) < FEW:
        return None
    if not len(spread.finite):
        return math.isfinite(printed)
    range_ = spread.of_another
    if range_ is None:
        return None
    if not math.isfinite(printed):
        return True
    rounded = ROUNDED * abs(printed)
    return not range_[0] - rounded <= printed <= range_[1] + rounded


def _settings(settings: list[str]) -> str:
    return f" ({'; '.join(settings)})" if any(settings) else ""
