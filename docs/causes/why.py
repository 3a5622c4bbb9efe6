"""Why a reproduction came out as it did: causes, how far our numbers are from the paper's, and what has no cause."""

import math
from collections.abc import Iterable, Mapping

from docs.causes import NUMBERS, shown
from docs.causes.cause import NEAR
from fedloom.reproductions.reproduction import Reproduction, Values
from fedloom.reproductions.spread import FEW, Spread

ROUNDED = 0.005  # printed numbers have two or three digits


def beside(r: Reproduction, values: Values) -> str:
    """How many of the paper's numbers are near our means, and on which side the others are; empty if it prints few.

    A mean of those seeds that get there is none of all of them, so it is not compared.
    """
    pairs = [(Spread(tuple(of.values())), printed) for of, printed in _printed(r, values)]
    if len(pairs) < 2:
        return ""
    whole = [(of, printed) for of, printed in pairs if len(of.finite) == len(of.values) and math.isfinite(printed)]
    apart = [of.mean / printed - 1 for of, printed in whole]
    below, above = sum(d < -NEAR for d in apart), sum(d > NEAR for d in apart)
    near = len(apart) - below - above
    words = (
        f"Our means are within {NEAR:.0%} of {near} of {len(pairs)} printed numbers, below {below} of them and above "
        f"{above}."
    )
    rest = len(pairs) > len(whole)
    return f"{words} The others cannot be compared: some seed of ours, or the paper, has no number." if rest else words


def why(r: Reproduction, values: Values) -> list[str]:
    """How many of the paper's numbers are others, the causes that the figures support, and what is left without any."""
    failed = [c for c in r.claims if r.verdict(c, values).kind == "does not hold"]
    causes = [c for c in shown(r.name, values) if c.explains == NUMBERS or any(map(c.about, failed))]
    unexplained = dict[str, list[str]]()
    for claim in failed:
        if not claim.ours and not any(c.about(claim) for c in causes):
            unexplained.setdefault(claim.words, []).append(claim.setting)
    open_ = [f"“{words}”{_settings(settings)}" for words, settings in unexplained.items()]
    numbers, silent = _numbers(r, values)
    if not causes and not open_ and not numbers and not silent:
        return []
    lines = ["", "Why:", ""]
    lines += [f"- {'The numbers' if c.explains == NUMBERS else f'“{c.explains}”'}: {c.words}" for c in causes]
    lines += [f"- {words}: why this does not hold is not known." for words in open_]
    explained = any(c.explains == NUMBERS for c in causes)
    rest = "what of this is not explained above is not known" if explained else "why is not known"
    lines += [f"- The numbers: {numbers}; {rest}."] * bool(numbers)
    return lines + [f"- The numbers: {silent}."] * bool(silent)


def _numbers(r: Reproduction, values: Values) -> tuple[str, str]:
    """How many of the paper's numbers are not such as one more seed of ours would give, and of how many it is open.

    Each empty if there are none.
    """
    found = [differs(of.values(), printed) for of, printed in _printed(r, values)]
    compared = [far for far in found if far is not None]
    words = "printed ones are outside of where one more seed of ours would be, 19 times in 20"
    far = f"{sum(compared)} of {len(compared)} {words}" if any(compared) else ""
    of_few = len(found) - len(compared)
    words = "printed ones cannot be judged: ours have fewer than three seeds, or in some of them no number"
    return far, f"{of_few} of {len(found)} {words}" if of_few else ""


def _printed(r: Reproduction, values: Values) -> list[tuple[Mapping[int, float], float]]:
    """Our figures and the paper's number, of all that have both.

    Those that follow from others are left out: seconds and bytes of so many rounds.
    """
    lines = [line for line in r.lines if not line.beside and line.combined is None and line.measure.counted != "MiB"]
    own = [(values.get((line.setting, line.method), {}), line.reported) for line in lines]
    return [(of, printed) for of, printed in own if of and printed is not None]


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
