"""FedProx with stragglers, figure 1 on the synthetic sets: Li et al., MLSys 2020, arXiv:1812.06127.

A share of each cohort has time for a random part of its epochs only. FedAvg drops these clients, FedProx counts what
they did; with mu = 0 that alone is what makes the difference. The paper prints curves and no numbers.
"""

import dataclasses
from functools import partial

from fedloom.algorithms import FedProx
from fedloom.experiments import experiment
from fedloom.reproductions.reproduction import Claim, Figures, Line, Reproduction
from fedloom.tasks import Measure
from fedloom.tasks.fedprox import LEVELS, synthetic_words

LOSS = Measure("train loss")
SHARES = (0.0, 0.5, 0.9)
METHODS = ("fedavg", "fedprox, mu=0", "fedprox")


def _setting(kind: str, share: float) -> str:
    return f"{synthetic_words(kind)}, {share:.0%} stragglers"


def _better(setting: str, figures: Figures) -> bool:
    return figures[setting, "fedprox"] < figures[setting, "fedavg"]


def _partial_work_helps(setting: str, figures: Figures) -> bool:
    return figures[setting, "fedprox, mu=0"] < figures[setting, "fedavg"]


def _stragglers() -> Reproduction:
    runs, lines, claims = {}, [], []
    for kind in LEVELS:
        for share in SHARES:
            setting, variant = _setting(kind, share), f"{share:.0%} stragglers"
            for method in METHODS:
                e = experiment(f"synthetic-{kind}", method.split(",")[0], variant, rounds=100)
                if method.endswith("mu=0"):
                    e = dataclasses.replace(e, algorithm=FedProx(0.0))
                runs[f"{setting}, {method}"] = e
                lines.append(Line(setting, method, f"{setting}, {method}", LOSS))
            if share:
                claims.append(Claim("FedProx ends below FedAvg", partial(_better, setting), setting))
                claims.append(
                    Claim(
                        "counting partial work (mu = 0) ends below dropping it (FedAvg)",
                        partial(_partial_work_helps, setting),
                        setting,
                    )
                )
    return Reproduction(
        "fedprox-stragglers",
        "FedProx against FedAvg with 0, 50 and 90% stragglers on the synthetic sets.",
        "FedProx, arXiv:1812.06127",
        runs,
        tuple(lines),
        tuple(claims),
        "The paper's figure has Synthetic(1, 1) only, where mu = 1 is its best; here the same claims are "
        "checked on the other sets too. The figure has 200 rounds; 100 and one seed are the default here, to save "
        "time.",
    )


REPRODUCTIONS = (_stragglers(),)
