"""FedOpt, table 1 (the ends of figure 1's curves) and the ExpDecay rows: Reddi et al., 2021, arXiv:2003.00295."""

from fedloom.metrics.scores import mse
from fedloom.reproductions.published import from_task, name_of, variants
from fedloom.reproductions.reproduction import Claim, Figures
from fedloom.tasks import Reported
from fedloom.tasks.fedopt import TASKS as FEDOPT_TASKS


def adaptive_is_better(f: Figures, setting: str, error: bool) -> bool:
    """FedAdam and FedYogi are better than FedAvg, which is true of every row of the table."""
    sign = -1 if error else 1
    return min(sign * f[setting, m] for m in ("fedadam", "fedyogi")) > sign * f[setting, "fedavg"]


def _claims(setting: str, reported: Reported | None) -> tuple[Claim, ...]:
    error = reported is not None and reported.measure.metric == f"test {mse.name}"
    return (
        Claim("FedAdam and FedYogi end better than FedAvg", lambda f: adaptive_is_better(f, setting, error), setting),
    )


REPRODUCTIONS = tuple(
    from_task(name_of("fedopt", task.name, variant), task.name, variant, _claims)
    for task in FEDOPT_TASKS
    for variant in variants(task.name)
)
