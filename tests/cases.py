"""Every registered algorithm with hyperparameters that converge on the battery's federation, and its oracle.

The oracles in transcriptions.py were written from the papers and share no code with the package.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import optax

import fedloom as fl
from tests import transcriptions as numpy_version

LR, STEPS = 0.1, 3  # of the clients' gradient steps, where the oracle takes such steps


class Case(NamedTuple):
    name: str  # in the registry
    algorithm: fl.Algorithm
    solver: fl.Solver | None  # None: what the battery chooses
    oracle: Callable[..., list[np.ndarray]]
    options: dict[str, Any]  # of the oracle

    def transcription(self, federation: Any, w: np.ndarray, cohorts: list[list[int]]) -> list[np.ndarray]:
        clients = numpy_version.Federation(federation.hessians, federation.centers, federation.weights)
        return self.oracle(clients, w, cohorts, **self.options)


MU_K = np.array([0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2])
GD = fl.GD(lr=LR, steps=STEPS)
LOCAL = {"eta_l": LR, "steps": STEPS}
LINEAR = {"mu": 0.3, "lr": 0.8}  # FedProx without the square of its term
OWN = {"eta": 2.0, "start": "own"}  # FedPD from a client's own model


def _case(name: str, oracle: str, solver: fl.Solver | None = None, options: Any = None, **hyperparameters: Any) -> Case:
    given = hyperparameters if options is None else options
    return Case(name, fl.make(name, **hyperparameters), solver, getattr(numpy_version, oracle), given)


def _stepping(name: str, oracle: str, **hyperparameters: Any) -> Case:
    return _case(name, oracle, GD, hyperparameters | LOCAL, **hyperparameters)


def _soft_threshold(v: np.ndarray, eta: float) -> np.ndarray:
    return np.sign(v) * np.maximum(np.abs(v) - 0.1 * eta, 0)


CASES = {
    "fedsgd": _case("fedsgd", "fedsgd", lr=0.5),
    "fedavg": _stepping("fedavg", "fedavg", lr=0.7),
    "fedavgm": _stepping("fedavgm", "fedavgm", lr=0.7, beta=0.8),
    "fedprox": _stepping("fedprox", "fedprox", mu=0.3, lr=0.8),
    "scaffold-II": _stepping("scaffold", "scaffold", lr=0.9, option="II", first_contact="zero"),
    "scaffold-I": _stepping("scaffold", "scaffold", lr=0.9, option="I", first_contact="zero"),
    "scaffold-II-c": _stepping("scaffold", "scaffold", lr=0.9, option="II", first_contact="c"),
    "scaffold-I-c": _stepping("scaffold", "scaffold", lr=0.9, option="I", first_contact="c"),
    "feddane": _case("feddane", "feddane", mu=0.5, correction=1.0, decay=1.0),
    "feddane-pipelined": _case("feddane", "feddane", mu=1.0, correction=1.0, decay=1.0, pipelined=True),
    "feddyn": _case("feddyn", "feddyn", alpha=0.3),
    "feddyn-alpha": _case("feddyn", "feddyn_code", None, {"alpha": 0.3}, alpha=0.3, weighting="alpha"),
    "feddyn-onegd": _case("feddyn-onegd", "feddyn_onegd", alpha=3.0),
    "fedsplit-all": _case("fedsplit", "fedsplit", eta=2.0, averaging="all"),
    "fedsplit-active": _case("fedsplit", "fedsplit", eta=2.0, averaging="active"),
    "fedpd": _case("fedpd", "fedpd", None, {"eta": 2.0, "repeats": [1] * 20}, eta=2.0),
    "fedpd-own": _case("fedpd", "fedpd_steps", GD, OWN | {"repeats": [1] * 20} | LOCAL, **OWN),
    "feddr": _case("feddr", "feddr", eta=2.0, alpha=1.3),
    "fedadagrad": _stepping("fedadagrad", "fedadagrad", lr=0.1, beta1=0.0, tau=1e-3),
    "fedadam": _stepping("fedadam", "fedadam", lr=0.01, beta1=0.9, beta2=0.99, tau=1e-3),
    "fedyogi": _stepping("fedyogi", "fedyogi", lr=0.01, beta1=0.9, beta2=0.99, tau=1e-3),
    "fedopt": Case(
        "fedopt",
        fl.FedOpt(optax.sgd(0.7, momentum=0.8)),
        GD,
        numpy_version.fedopt_momentum,
        {"lr": 0.7, "momentum": 0.8} | LOCAL,
    ),
    "lookahead": _stepping("lookahead", "fedavg", lr=0.5),
    "adaalter": _case(
        "adaalter",
        "adaalter",
        fl.Adagrad(lr=1.0, steps=STEPS, epsilon=1e-3),
        {"lr": 0.9, "initial_a": 0.5, "eta_l": 1.0, "steps": STEPS, "epsilon": 1e-3},
        lr=0.9,
        initial_a=0.5,
    ),
    "fedasync": _stepping("fedasync", "fedasync", alpha=0.7, rho=0.3),
    "fedbuff": _stepping("fedbuff", "fedavg", lr=0.7),  # without staleness
}

# The published runs: v from the raw mean update, starting at 0.
AS_RUN = {"lr": 0.01, "beta1": 0.9, "tau": 1e-3, "initial_v": 0.0, "second_moment": "raw"}

# Variants that are compared with their oracle, but have no right limit or the same law as a case above.
VARIANTS = {
    "fedprox-mu_k": _stepping("fedprox", "fedprox", mu=MU_K, lr=0.8),
    "fedprox-linear": _case("fedprox", "fedprox_linear", GD, LINEAR | LOCAL, **LINEAR, term="linear"),
    "fedprox-linear-mu_k": _case(
        "fedprox", "fedprox_linear", GD, LINEAR | LOCAL | {"mu": MU_K / 8}, **LINEAR | {"mu": MU_K / 8}, term="linear"
    ),
    "scaffold-II-printed": _stepping("scaffold", "scaffold", lr=0.9, option="II", first_contact="c-as-printed"),
    "scaffold-divisor": _stepping("scaffold", "scaffold", lr=0.9, option="II", first_contact="zero", divisor=0.5),
    "scaffold-divisor-c": _stepping("scaffold", "scaffold", lr=0.9, option="II", first_contact="c", divisor=0.5),
    "scaffold-I-printed": _stepping("scaffold", "scaffold", lr=0.9, option="I", first_contact="c-as-printed"),
    "feddane-mu_k": _case("feddane", "feddane", mu=MU_K + 0.5, correction=1.0, decay=1.0),
    "feddane-mu_k-pipelined": _case("feddane", "feddane", mu=MU_K + 0.5, correction=0.9, decay=0.8, pipelined=True),
    "feddane-decayed": _case("feddane", "feddane", mu=0.5, correction=0.9, decay=0.8),
    "feddane-pipelined-decayed": _case("feddane", "feddane", mu=0.5, correction=0.9, decay=0.8, pipelined=True),
    "feddr-l1": _case(
        "feddr",
        "feddr",
        None,
        {"eta": 2.0, "alpha": 0.7, "prox": _soft_threshold},
        eta=2.0,
        alpha=0.7,
        g=fl.regularizers.l1(0.1),
    ),
    "fedadagrad-momentum": _stepping("fedadagrad", "fedadagrad", lr=0.1, beta1=0.5, tau=1e-2, initial_v=0.1),
    "fedadagrad-raw": _stepping("fedadagrad", "fedadagrad", lr=0.1, beta1=0.5, tau=1e-2, second_moment="raw"),
    "fedadam-as-run": _stepping("fedadam", "fedadam", beta2=0.99, bias_correction="keras", **AS_RUN),
    "fedadam-flower": _stepping("fedadam", "fedadam", beta2=0.999, bias_correction="flower", **AS_RUN),
    "fedyogi-as-run": _stepping("fedyogi", "fedyogi", beta2=0.999, bias_correction="keras", **AS_RUN),
    "lookahead-adam": _case(
        "lookahead",
        "lookahead_adam",
        fl.Optax(optax.adam(0.05, b1=0.9, b2=0.99, eps=1e-3), steps=4),
        {"lr": 0.5, "adam_lr": 0.05, "beta1": 0.9, "beta2": 0.99, "eps": 1e-3, "steps": 4},
        lr=0.5,
    ),
}
