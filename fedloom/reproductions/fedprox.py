"""FedProx with stragglers, figure 1 on Synthetic(1, 1): Li et al., MLSys 2020, arXiv:1812.06127.

A share of each cohort has time for a random part of its epochs only. FedAvg drops these clients, FedProx counts what
they did; with mu = 0 that alone is what makes the difference. The paper prints curves and no numbers.
"""

import dataclasses
from operator import itemgetter

from fedloom.algorithms import FedProx
from fedloom.experiments import experiment
from fedloom.reproductions.reproduction import Line, Reproduction, smaller
from fedloom.tasks import Measure

LOSS = Measure("train loss")
SHARES = (0.0, 0.5, 0.9)
METHODS = ("fedavg", "fedprox, mu=0", "fedprox")
TASK = "synthetic-1-1-authors"
BELOW = "FedProx ends below FedAvg"
PARTIAL = "counting partial work (mu = 0) ends below dropping it (FedAvg)"


def _setting(share: float) -> str:
    return f"Synthetic(1, 1), {share:.0%} stragglers"


def _stragglers() -> Reproduction:
    runs, lines, claims = {}, [], []
    for share in SHARES:
        setting, variant = _setting(share), f"{share:.0%} stragglers"
        for method in METHODS:
            e = experiment(TASK, method.split(",")[0], variant, rounds=200, evaluate_every=5)
            if method.endswith("mu=0"):
                e = dataclasses.replace(e, algorithm=FedProx(0.0))
            runs[f"{setting}, {method}"] = e
            lines.append(Line(setting, method, f"{setting}, {method}", LOSS))
        if share:
            fedavg, mu_0, fedprox = (itemgetter((setting, method)) for method in METHODS)
            claims.append(smaller(BELOW, fedprox, fedavg, setting))
            claims.append(smaller(PARTIAL, mu_0, fedavg, setting))
    return Reproduction(
        "fedprox-stragglers",
        "FedProx against FedAvg with 0, 50 and 90% stragglers on Synthetic(1, 1): 10 of 30 devices, 200 rounds.",
        "FedProx, arXiv:1812.06127",
        runs,
        tuple(lines),
        tuple(claims),
        "Clients have the sizes of the authors' files, in which one of the 30 has 61% of all examples; the data are "
        "drawn anew for each seed. Minibatches come in random order, the authors' in a fixed one, and a straggler's "
        "epochs do not depend on the size of the client before it, as they do in the authors' program.",
        seeds=tuple(range(10)),
    )


REPRODUCTIONS = (_stragglers(),)
