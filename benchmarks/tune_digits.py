"""The settings of task "digits": for each method the point of a grid with the smallest training loss.

    python benchmarks/tune_digits.py [--algorithms fedavg,feddyn]

Client step sizes times one or two fields of the method, 100 rounds, two seeds that the default comparison does not use.
The loss is the mean over the last 50 rounds; test data are not looked at.
"""

import argparse

import fedloom as fl
from fedloom.experiments import Select, sweep_table

SEEDS = (10, 11)
LR = (0.03, 0.1, 0.3)
ADAPTIVE = {"algorithm.tau": (1e-3, 1e-2)}
GRIDS: dict[str, dict[str, tuple[float, ...]]] = {
    "fedavg": {},
    "fedavgm": {"algorithm.lr": (0.3, 1.0), "algorithm.beta": (0.9,)},
    "fedprox": {"algorithm.mu": (0.01, 0.1, 1.0)},
    "scaffold": {},
    "feddane": {"algorithm.mu": (0.01, 0.1, 1.0)},
    "feddyn": {"algorithm.alpha": (0.01, 0.03, 0.1, 0.3)},
    "feddr": {"algorithm.eta": (1.0, 3.0, 10.0, 30.0), "algorithm.alpha": (1.0, 1.5)},
    "fedpd": {"algorithm.eta": (1.0, 3.0, 10.0, 30.0)},
    "fedadagrad": {"algorithm.lr": (0.03, 0.1, 0.3), **ADAPTIVE},
    "fedadam": {"algorithm.lr": (0.01, 0.03, 0.1), **ADAPTIVE},
    "fedyogi": {"algorithm.lr": (0.01, 0.03, 0.1), **ADAPTIVE},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--algorithms", default=",".join(GRIDS), help="names, separated by commas; default: all")
    for name in parser.parse_args().algorithms.split(","):
        base = fl.experiment("digits", name, rounds=100, evaluate_every=5)
        study = fl.sweep(base, {"solver.lr": LR, **GRIDS[name], "seed": SEEDS}, select=Select("train loss", 50))
        print(f"{name}\n{sweep_table(study)}\n", flush=True)


if __name__ == "__main__":
    main()
