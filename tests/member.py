"""One of several processes that run `simulate` together: what it runs, and what it found.

`python -m tests.member I N COORDINATOR FILE` is process I of N; it writes what its records say to FILE.I. The test runs
the same in its own process, alone.
"""

import pickle
import sys

import jax
import jax.numpy as jnp
import numpy as np

import fedloom as fl
from fedloom import cohorts
from fedloom.engines import memory_store
from fedloom.engines.plan import Plan

SMALL = {"ON_DEVICE": 0.0, "LENT": 1}  # memories on disk, one round in a call


@fl.frozen
class Poison(fl.FedDR):
    """Client 4 returns NaN from the second round on."""

    def local(self, w, k, client):
        reply, memory = super().local(w, k, client)
        bad = (client.t >= 1) & jnp.all(client.objective.center == quadratics().centers[4])
        return jnp.where(bad, jnp.nan, reply), memory


def quadratics():
    return fl.quadratics(clients=12, dimension=4, seed=3)


def least_squares():
    rng = np.random.default_rng(0)
    sizes = [3, 9, 1, 6, 5, 2, 7, 4]
    x, y = rng.normal(size=(sum(sizes), 4)), rng.normal(size=sum(sizes))
    return fl.examples((x, y), sizes, lambda w, rows, key: (rows[0] @ w - rows[1]) ** 2 / 2)


def cases():
    """By name: algorithm, federation, solver, and the options of `simulate`."""
    gd, sgd = fl.GD(0.2, 3), fl.SGD(0.1, batch_size=2, epochs=2)
    part = {"cohort": cohorts.uniform(5), "seed": 1}
    mu = jnp.linspace(0.1, 0.5, 12)
    return {
        "scaffold": (fl.Scaffold(), quadratics(), gd, {**part, "chunk": 2, "plan": Plan(2, 2)}),
        "feddr": (fl.FedDR(0.5), quadratics(), fl.Exact(), {**part, "plan": Plan(3, 2)}),
        "two exchanges": (fl.FedDANE(mu=mu), quadratics(), gd, {**part, "plan": Plan(3, 2)}),
        "minibatches": (fl.FedAvg(), least_squares(), sgd, {**part, "chunk": 3, "plan": Plan(1, 2)}),
        "drop": (Poison(0.5), quadratics(), fl.Exact(), {"on_nonfinite": "drop", "plan": Plan(6, 2)}),
        "stragglers": (
            fl.FedProx(0.1),
            least_squares(),
            sgd,
            {"cohort": cohorts.stragglers(of=cohorts.uniform(5), share=0.5), "seed": 2, "plan": Plan(2, 2)},
        ),
        "cohorts of any size": (fl.Scaffold(), least_squares(), sgd, {"cohort": cohorts.bernoulli(0.4), "chunk": 2}),
        "fewer clients than devices": (fl.FedDyn(0.1), quadratics(), gd, {"cohort": cohorts.uniform(1)}),
        "tolerance": (
            fl.FedDR(0.5),
            quadratics(),
            fl.ToTolerance(1e-9, lr=0.3, max_steps=2),
            {**part, "plan": Plan(3, 2)},
        ),
        "each for itself": (fl.Scaffold(), quadratics(), gd, {**part, "plan": Plan(5)}),
        "on disk": (fl.Scaffold(), quadratics(), gd, {**part, "chunk": 2, "plan": Plan(3, 2)}),
    }


def said(record):
    """Everything that a record says, on the host."""
    facts = (record.round, record.counters, record.dropped, record.unsolved, [ids.tolist() for ids in record.cohort])
    numbers = jax.tree.map(np.asarray, (record.server, dict(record.clients), record.residual))
    return facts, [np.asarray(x) for x in jax.tree.leaves(numbers)]


def found(name, plan=None):
    """What the records of a case say, in one go and resumed after round 2. `plan`: another one."""
    algorithm, federation, solver, options = cases()[name]
    if plan is not None:
        options = {**options, "plan": plan}
    before = {field: getattr(memory_store, field) for field in SMALL}
    for field, value in (SMALL if name == "on disk" else {}).items():
        setattr(memory_store, field, value)
    try:
        start = jnp.array([2.0, -1.0, 0.5, 3.0])
        run = lambda rounds, **more: fl.simulate(algorithm, federation, solver, start, rounds, **options, **more)  # noqa: E731
        whole, kept = [], None
        for record in run(6):
            whole.append(said(record))
            kept = record.keep() if record.round <= 3 else kept
        return whole, [said(record) for record in run(6, resume=kept)], str(kept.origin.plan)
    finally:
        for field, value in before.items():
            setattr(memory_store, field, value)


def refused(do):
    """The kind and the words of the error."""
    try:
        do()
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


def errors():
    """What is refused, or ends with an error, in every process alike."""
    args = Poison(0.5), quadratics(), fl.Exact(), jnp.ones(4), 3
    other = args[0], fl.quadratics(clients=12, dimension=4, seed=jax.process_index()), *args[2:]
    return [
        refused(lambda: list(fl.simulate(*args, plan=Plan(6, 2)))),
        refused(lambda: fl.simulate(*args, plan=Plan(1, 3))),
        refused(lambda: fl.simulate(*other)),
    ]


if __name__ == "__main__":
    i, n, address, file = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
    jax.distributed.initialize(address, n, i, coordinator_bind_address=address, cluster_detection_method="deactivate")
    everything = {name: found(name) for name in cases()}, errors()
    with open(f"{file}.{i}", "wb") as out:
        pickle.dump(everything, out)
