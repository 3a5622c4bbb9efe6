"""Why a recorded result differs from its paper: short paragraphs, each with what the record must show for it.

A cause is on a page only if the recorded figures support it, see `Cause.supported`, and what it explains is so. What
the runs cannot show has no place here, however likely it is.
"""

from docs.causes import feddane, feddr, feddyn, fedopt, linear_speedup
from docs.causes.cause import NUMBERS as NUMBERS
from docs.causes.cause import Cause as Cause
from docs.causes.cause import Causes, enough
from fedloom.reproductions.reproduction import Values

CAUSES: Causes = {**feddyn.CAUSES, **linear_speedup.CAUSES, **feddane.CAUSES, **feddr.CAUSES, **fedopt.CAUSES}


def shown(name: str, values: Values) -> list[Cause]:
    """The causes that the recorded figures of a reproduction support; those of too few seeds count as missing."""
    return [cause for cause in CAUSES.get(name, ()) if _supported(cause, enough(values))]


def _supported(cause: Cause, values: Values) -> bool:
    try:
        return cause.supported(values)
    except KeyError:
        return False
