"""Bad input gets a sentence that names the field and the fix, before the expensive work."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedloom as fl
from fedloom import cohorts
from fedloom.hyperparameters import frozen

FEDERATION = fl.quadratics()
W = jnp.ones(4)

VALUES = {
    "unknown algorithm": (
        lambda: fl.make("fedynn"),
        r"no algorithm 'fedynn'\. Did you mean 'feddyn'\? Known: adaalter",
    ),
    "other case": (lambda: fl.make("SCAFFOLD"), r"no algorithm 'SCAFFOLD'\. Did you mean 'scaffold'"),
    "mu as a list": (
        lambda: fl.FedProx(mu=[0.1, 0.2]),
        "FedProx: mu must be .*, or an array with one entry for each client",
    ),
    "nothing near": (lambda: fl.make("zzz"), r"no algorithm 'zzz'\. Known: adaalter, .*scaffold"),
    "unknown hyperparameter": (lambda: fl.make("feddyn", alfa=1.0), r"feddyn has no .*'alfa'\. Did you mean 'alpha'"),
    "negative step": (lambda: fl.FedAvg(lr=-1.0), "FedAvg: lr must be a positive number, got -1.0"),
    "zero step": (lambda: fl.make("fedsgd", lr=0), "FedSGD: lr must be a positive number, got 0"),
    "nan step": (lambda: fl.FedAvg(lr=float("nan")), "FedAvg: lr must be a positive number, got nan"),
    "infinite step": (lambda: fl.FedAvg(lr=float("inf")), "FedAvg: lr must be a positive number, got inf"),
    "text for a number": (lambda: fl.FedAvg(lr="0.1"), "FedAvg: lr must be a positive number, got '0.1'"),
    "none for a number": (lambda: fl.FedAvg(lr=None), "FedAvg: lr must be a positive number, got None"),
    "alpha 0": (lambda: fl.FedDR(alpha=0.0), r"FedDR: alpha must be a number in \(0, 2\], got 0.0"),
    "alpha negative": (lambda: fl.FedDR(alpha=-0.5), r"FedDR: alpha must be a number in \(0, 2\]"),
    "alpha above 2": (lambda: fl.FedDR(alpha=2.1), r"FedDR: alpha must be a number in \(0, 2\], got 2.1"),
    "eta 0": (lambda: fl.FedDR(eta=0.0), "FedDR: eta must be a positive number"),
    "no regularizer": (lambda: fl.FedDR(g=0.1), r"FedDR: g must be a regularizer such as l1\(0.01\), got 0.1"),
    "beta 1": (lambda: fl.FedAdam(beta1=1.0), r"FedAdam: beta1 must be a number in \[0, 1\)"),
    "option": (lambda: fl.Scaffold(option="III"), "Scaffold: option must be one of 'I', 'II', got 'III'"),
    "averaging": (lambda: fl.FedSplit(averaging="mean"), "FedSplit: averaging must be one of 'all', 'active'"),
    "skip": (lambda: fl.FedPD(skip=1.0), r"FedPD: skip must be a number in \[0, 1\)"),
    "optimizer": (lambda: fl.FedOpt(optimizer="adam"), "FedOpt: optimizer must be an optax optimizer"),
    "mu_k": (lambda: fl.FedProx(mu=np.array([1.0, -1.0])), "FedProx: mu must be a non-negative number"),
    "cohort size": (lambda: cohorts.uniform(0), "uniform: m must be a positive integer, got 0"),
    "cohort fraction": (lambda: cohorts.uniform(0.1), "uniform: m must be a positive integer"),
    "probability": (lambda: cohorts.bernoulli(1.5), r"bernoulli: q must be a number in \(0, 1\], got 1.5"),
}


@pytest.mark.parametrize(("make", "sentence"), VALUES.values(), ids=VALUES.keys())
def test_values(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def run(engine, algorithm=None, federation=FEDERATION, solver=None, w=W, rounds=3, **more):
    return engine(algorithm or fl.FedAvg(), federation, solver or fl.GD(), w, rounds, **more)


RUNS = {
    "cohort too large": ({"cohort": cohorts.uniform(8)}, "m = 8 is larger than the population of 7 clients"),
    "cyclic too large": ({"cohort": cohorts.cyclic(8)}, "m = 8 is larger than the population of 7 clients"),
    "needs everyone": (
        {"algorithm": fl.FedPD(), "cohort": cohorts.uniform(3)},
        r"FedPD needs every client in every round, but the cohort is uniform\(m=3\); use cohort=everyone\(\)",
    ),
    "cannot drop": ({"algorithm": fl.FedPD(), "on_nonfinite": "drop"}, "FedPD needs every .* so none can be dropped"),
    "unknown client": ({"cohort": cohorts.scheduled([[0], [9]])}, r"trace\[1\] names client 9, but clients are 0 to 6"),
    "short trace": ({"cohort": cohorts.scheduled([[0], [1]])}, "trace has 2 rounds, but the run asks for round 3"),
    "scaffold with momentum": (
        {"algorithm": fl.Scaffold(), "solver": fl.SGD(0.1, momentum=0.9)},
        "Scaffold .*needs a solver that offers lr_sum.*option I",
    ),
    "scaffold with adam": (
        {"algorithm": fl.Scaffold(), "solver": fl.Optax(optax.adam(0.1))},
        "Scaffold .*needs a solver that offers lr_sum",
    ),
    "adaalter with sgd": (
        {"algorithm": fl.AdaAlter(), "solver": fl.SGD()},
        "AdaAlter .*needs a solver that offers accumulator.*Use the solver Adagrad",
    ),
    "exact stragglers": (
        {"algorithm": fl.FedDyn(), "solver": fl.Exact(), "cohort": cohorts.stragglers(of=cohorts.uniform(3))},
        "needs a solver that offers work",
    ),
    "mu_k of another length": ({"algorithm": fl.FedProx(mu=np.ones(5))}, "mu has 5 entries for 7 clients"),
    "model as matrix": ({"w": jnp.ones((2, 2))}, r"w must be a flat vector of floats, got shape \(2, 2\)"),
    "model of integers": ({"w": jnp.arange(4)}, "w must be a flat vector of floats"),
    "model of another length": ({"w": jnp.ones(3)}, "loss does not accept w of length 3"),
    "model with nan": ({"w": jnp.array([1.0, jnp.nan, 0.0, 0.0])}, "w must be finite"),
    "negative rounds": ({"rounds": -1}, "rounds must be a non-negative integer, got -1"),
    "fractional rounds": ({"rounds": 2.5}, "rounds must be a non-negative integer"),
    "weights": (
        {"federation": dataclasses.replace(FEDERATION, weights=np.ones(7))},
        "weights must be non-negative and sum to 1, but their sum is 7",
    ),
    "array for a number": (
        {"algorithm": fl.FedDyn(alpha=np.ones(7))},
        "FedDyn: alpha must be one number",
    ),
    "nested stragglers": (
        {"solver": fl.Exact(), "cohort": cohorts.stragglers(of=cohorts.stragglers(of=cohorts.uniform(3)), drop=True)},
        "needs a solver that offers work",
    ),
    "trace without lists": ({"cohort": cohorts.scheduled([0, 1, 2])}, r"trace\[0\] must be a list of clients, got 0"),
    "large seed": ({"seed": 2**32}, "seed must be a non-negative integer smaller than 4294967296"),
    "scaffold to a tolerance": (
        {"algorithm": fl.Scaffold(), "solver": fl.ToTolerance()},
        "Scaffold .*needs a solver that offers lr_sum",
    ),
    "negative seed": ({"seed": -1}, "seed must be a non-negative integer"),
    "on_nonfinite": ({"on_nonfinite": "ignore"}, "on_nonfinite must be 'raise' or 'drop', got 'ignore'"),
}


@pytest.mark.parametrize("engine", [fl.simulate, fl.reference])
@pytest.mark.parametrize(("arguments", "sentence"), RUNS.values(), ids=RUNS.keys())
def test_runs_are_refused_when_called_not_when_iterated(engine, arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        run(engine, **arguments)


TYPES = {
    "algorithm by name": (
        {"algorithm": "fedavg"},
        r"algorithm must be an Algorithm, e\.g\. FedAvg\(\) or make\(\"fedavg\"\)",
    ),
    "algorithm as class": ({"algorithm": fl.FedAvg}, "algorithm must be an Algorithm"),
    "solver": ({"solver": optax.adam(0.1)}, r"solver must be a Solver, e\.g\. SGD"),
    "cohort": ({"cohort": 10}, r"cohort must be a CohortRule, e\.g\. uniform\(10\), got 10"),
    "federation": ({"federation": [1, 2]}, "federation must be a Federation"),
}


@pytest.mark.parametrize(("arguments", "sentence"), TYPES.values(), ids=TYPES.keys())
def test_wrong_kinds(arguments, sentence):
    with pytest.raises(TypeError, match=sentence):
        run(fl.simulate, **arguments)


def test_chunk():
    with pytest.raises(ValueError, match="chunk must be a positive integer, got 0"):
        run(fl.simulate, chunk=0)


def test_no_rounds_is_an_empty_run():
    assert list(run(fl.simulate, rounds=0)) == []


def test_option_I_works_with_any_solver():
    records = list(run(fl.simulate, algorithm=fl.Scaffold(option="I"), solver=fl.Optax(optax.adam(0.1)), rounds=1))
    assert np.isfinite(records[-1].w).all()


def test_a_record_is_resumed_by_its_own_run_only():
    start = {"algorithm": fl.FedAvg(), "rounds": 3, "seed": 1}
    record = list(run(fl.simulate, **start))[-1]
    for change, sentence in (
        ({"algorithm": fl.FedSGD()}, "the record is of FedAvg"),
        ({"algorithm": fl.Scaffold()}, "the record is of FedAvg"),
        ({"seed": 2}, "the record's run has seed 1, this one 2"),
        ({"w": record.w}, "w must be the initial model of the record's run"),
        ({"rounds": 2}, "the record already has 3 rounds"),
    ):
        for engine in (fl.simulate, fl.reference):
            with pytest.raises(ValueError, match=sentence):
                run(engine, **(start | {"rounds": 5} | change), resume=record)


@frozen
class Widening(fl.FedAvg):
    """The server's state becomes float64 whatever the model is."""

    def receive(self, s, dw, cohort):
        return fl.Server((s.w + dw).astype(jnp.float64))


def test_mixed_float_types_are_refused_before_the_run():
    with pytest.raises(ValueError, match="w is of type float32, but the federation's gradients are of type float64"):
        run(fl.simulate, w=jnp.ones(4, jnp.float32))
    single = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), FEDERATION)
    with pytest.raises(TypeError, match=r"Exchange 'train' of Widening.*float32\[4\] into float64\[4\]"):
        run(fl.simulate, Widening(), single, w=jnp.ones(4, jnp.float32))


def test_numpy_numbers_adapt_to_the_model():
    """np.logspace gives np.float64, which must not turn a float32 model into float64."""
    single = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), FEDERATION)
    algorithm, solver = fl.FedAvg(lr=np.float64(0.5)), fl.GD(np.float64(0.1))
    assert list(run(fl.simulate, algorithm, single, solver, jnp.ones(4, jnp.float32)))[-1].w.dtype == jnp.float32


def test_groups_that_do_not_fit_are_refused_before_the_run():
    algorithm = fl.FedDR(g=fl.regularizers.l2(0.1, groups=(2, 3)))
    with pytest.raises(ValueError, match="groups add up to 5 coordinates, but the model has 4"):
        run(fl.simulate, algorithm)
