"""Why claims of FedOpt come out otherwise."""

from functools import partial

from docs.causes.cause import Cause, Causes, in_every_seed
from fedloom.reproductions.fedopt import (
    FLATTER,
    RECTANGLES,
    flattest,
    steepest,
    with_small_tau,
)
from fedloom.reproductions.reproduction import Values, of_seeds


def _tau(task: str, values: Values) -> bool:
    """In every seed FedAdam and FedYogi are flatter with the small tau, and all adaptive methods than the others."""
    name, small = f"fedopt-figure2-{task}", with_small_tau(task)
    below = of_seeds(lambda f: steepest(f, small) < flattest(f, task), values)
    flatter = all(in_every_seed(name, f"{m}: {FLATTER}", values) for m in ("fedadam", "fedyogi"))
    return flatter and bool(below) and all(below)


CAUSES: Causes = {
    f"fedopt-figure2-{task}": (
        Cause(
            RECTANGLES,
            "tau. Where clients' changes are small beside it, an adaptive method's step is nearly in proportion to "
            "them. With 1e-5 in place of 1e-3 the best server step of FedAdam and FedYogi depends less on the "
            "client's, and that of all three adaptive methods less than FedAvgM's and FedAvg's, in every seed.",
            partial(_tau, task),
        ),
    )
    for task in ("digits", "mnist-writers")
}
