"""Every algorithm on one task: logistic regression over 30 clients that differ, 10 of them in a round.

The data are drawn as in the synthetic set of FedProx (Li et al., 2020): each client has its own labelling rule, its own
distribution of inputs, and its own number of examples. The table says what each method needs to come within 0.15 of the
optimal training loss, which Newton's method finds with all data in one place.

    python examples/compare.py [--algorithms fedavg,feddyn] [--rounds 200] [--seed 0]
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fedloom as fl
from fedloom.hyperparameters import nearest

FEATURES, CLASSES = 20, 5
TARGET = 0.15  # above the optimal loss


def loss(w: jax.Array, rows: tuple[jax.Array, jax.Array], key: jax.Array | None) -> jax.Array:
    """Cross-entropy of multinomial logistic regression with a small ridge, one number for each row."""
    x, y = rows
    scores = x @ w.reshape(FEATURES, CLASSES)
    return optax.softmax_cross_entropy_with_integer_labels(scores, y) + 5e-3 * jnp.sum(w**2)


def synthetic(clients: int = 30, seed: int = 0) -> tuple[fl.Federation, tuple[np.ndarray, np.ndarray]]:
    sizes = np.clip(np.random.default_rng(seed).lognormal(4, 1, clients), 20, 300).astype(int)
    data = fl.data.synthetic(1.0, 1.0, clients=clients, features=FEATURES, classes=CLASSES, sizes=sizes, seed=seed)
    return fl.examples(data.train, data.split, loss), data.train


def optimum(federation: fl.Federation, w: jax.Array) -> jax.Array:
    """Newton's method on the whole problem."""
    hessian = jax.jit(jax.jacfwd(federation.grad))
    for _ in range(12):
        w = w - jnp.linalg.solve(hessian(w), federation.grad(w))
    return w


# The methods whose limit depends on the client's step size want a smaller one.
SMALL = fl.SGD(lr=0.02, batch_size=10, epochs=1)
SGD = fl.SGD(lr=0.05, batch_size=10, epochs=1)
METHODS: dict[str, tuple[fl.Algorithm, fl.Solver]] = {
    "fedsgd": (fl.FedSGD(lr=0.5), SGD),
    "fedavg": (fl.FedAvg(), SMALL),
    "fedavgm": (fl.FedAvgM(lr=0.5, beta=0.7), SMALL),
    "fedprox": (fl.FedProx(mu=0.1), SMALL),
    "scaffold": (fl.Scaffold(), SGD),
    "feddane": (fl.FedDANE(mu=1.0), SGD),
    "feddyn": (fl.FedDyn(alpha=0.3), SGD),
    "feddyn-onegd": (fl.FedDynOneGD(alpha=5.0), SGD),
    "fedsplit": (fl.FedSplit(eta=1.0), SGD),
    "fedpd": (fl.FedPD(eta=5.0), SGD),
    "feddr": (fl.FedDR(eta=2.0, alpha=1.5), SGD),
    "fedadagrad": (fl.FedAdagrad(lr=0.1, tau=1e-2), SMALL),
    "fedadam": (fl.FedAdam(lr=0.03, tau=1e-2), SMALL),
    "fedyogi": (fl.FedYogi(lr=0.03, tau=1e-2), SMALL),
    "fedopt": (fl.FedOpt(optax.sgd(0.5, momentum=0.7, nesterov=True)), SMALL),
    "lookahead": (fl.Lookahead(lr=0.8), fl.Optax(optax.sgd(0.01, momentum=0.9), batch_size=10)),
    "adaalter": (fl.AdaAlter(), fl.Adagrad(lr=0.1, batch_size=10)),
}

HEAD = f"{'algorithm':<13} {'rounds':>7} {'MB':>7} {'gradients':>10}   {'final gap':>9} {'accuracy':>8} {'seconds':>7}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--algorithms", default=",".join(METHODS), help="names, separated by commas; default: all")
    parser.add_argument("--rounds", type=int, default=200, help="rounds for each algorithm")
    parser.add_argument("--seed", type=int, default=0, help="of the data, the cohorts and the minibatches")
    given = parser.parse_args()
    for name in given.algorithms.split(","):
        if name not in METHODS:
            parser.error(f"--algorithms: there is no {name!r}.{nearest(name, METHODS)}")
    if given.rounds < 1:
        parser.error(f"--rounds must be 1 or more, got {given.rounds}.")

    federation, (x, y) = synthetic(seed=given.seed)
    w = jnp.zeros(FEATURES * CLASSES)
    f = jax.jit(federation.loss)
    best = float(f(optimum(federation, w)))

    @jax.jit
    def accuracy(w: jax.Array) -> jax.Array:
        return jnp.mean(jnp.argmax(x @ w.reshape(FEATURES, CLASSES), axis=1) == y)

    print(f"{federation.clients} clients, 10 in a round (fedpd: all), {len(y)} examples, {given.rounds} rounds")
    print(f"loss {float(f(w)):.3f} at the start, {best:.3f} at the optimum; target {best + TARGET:.3f}\n")
    print(f"{'':<13} {'to reach the target':^26}")
    print(HEAD)
    for name in given.algorithms.split(","):
        start = time.perf_counter()
        algorithm, solver = METHODS[name]
        cohort = fl.cohorts.everyone() if algorithm.needs_everyone else fl.cohorts.uniform(10)
        reached = "-", "-", "-"
        for record in fl.simulate(
            algorithm, federation, solver, w, given.rounds, cohort=cohort, chunk=5, seed=given.seed
        ):
            gap = float(f(record.w)) - best
            c = record.counters
            if gap <= TARGET and reached[0] == "-":
                reached = f"{c.rounds}", f"{(c.bytes_down + c.bytes_up) / 1e6:.2f}", f"{c.gradients:,}"
        print(
            f"{name:<13} {reached[0]:>7} {reached[1]:>7} {reached[2]:>10}   {gap:>9.4f} "
            f"{float(accuracy(record.w)):>8.1%} {time.perf_counter() - start:>7.1f}",
            flush=True,
        )
    print("\n- : not reached. MB and gradients are totals over all clients, both directions.")


if __name__ == "__main__":
    main()
