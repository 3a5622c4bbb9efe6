"""FedProx's term = "linear", the square lost as in FedDyn's program: what it solves, and that it drives on."""

import dataclasses
import tomllib

import numpy as np
import pytest

import fedloom as fl
from fedloom.diagnosis import from_theory
from fedloom.experiments import experiment, from_config
from fedloom.testing import relative_difference
from tests.federations import FEDERATION, W, last, least_squares

HESSIANS, CENTERS, WEIGHTS = (np.asarray(x) for x in (FEDERATION.hessians, FEDERATION.centers, FEDERATION.weights))
engines = pytest.mark.parametrize("engine", [fl.simulate, fl.reference], ids=["simulate", "reference"])
MU = 0.2


@engines
def test_a_reply_solves_the_local_problem(engine):
    """The gradient of F_k(v) - mu <w, v> is A_k (v - b_k) - mu w, so that v = b_k + mu A_k^-1 w."""
    w = last(engine, fl.FedProx(MU, term="linear"), FEDERATION, fl.Exact(), W, 1).w
    replies = [b + np.linalg.solve(a, MU * np.asarray(W)) for a, b in zip(HESSIANS, CENTERS, strict=True)]
    assert relative_difference(w, WEIGHTS @ replies) < 1e-12


@engines
def test_without_mu_both_are_fedavg(engine):
    solver = fl.GD(0.1, steps=3)
    ends = [last(engine, a, FEDERATION, solver, W, 4).w for a in (fl.FedAvg(), fl.FedProx(0, term="linear"))]
    np.testing.assert_array_equal(*ends)


def test_one_step_with_as_much_weight_decay_is_one_without_either():
    """At v = w the term's gradient is -mu w, that of the decay mu v."""
    federation = least_squares()
    decayed = fl.SGD(0.1, steps=1, weight_decay=MU)
    plain = dataclasses.replace(decayed, weight_decay=0.0)
    w = np.ones(4)
    ends = [
        last(fl.simulate, a, federation, solver, w, 1).w
        for a, solver in ((fl.FedProx(MU, term="linear"), decayed), (fl.FedAvg(), plain), (fl.FedAvg(), decayed))
    ]
    assert relative_difference(ends[0], ends[1]) < 1e-12
    assert relative_difference(ends[2], ends[1]) > 1e-3


def test_it_drives_on_where_the_proximal_term_holds_back():
    solver = fl.GD(0.1, steps=3)
    far = 100 * np.ones_like(W)  # along w, further out than any minimiser
    proximal, linear, plain = (
        last(fl.simulate, a, FEDERATION, solver, far, 1).w
        for a in (fl.FedProx(MU), fl.FedProx(MU, term="linear"), fl.FedAvg())
    )
    assert linear @ far > plain @ far
    assert np.linalg.norm(proximal - far) < np.linalg.norm(plain - far)


def test_other_terms_are_refused():
    with pytest.raises(ValueError, match="FedProx: term must be one of 'proximal', 'linear', got 'square'"):
        fl.FedProx(term="square")


def test_it_is_written_and_read():
    e = experiment("quadratics", fl.FedProx(0.3, term="linear"))
    config = tomllib.loads(e.to_toml())
    assert config["algorithm"] == {"name": "fedprox", "mu": 0.3, "lr": 1.0, "term": "linear"}
    assert from_config(config) == e
    del config["algorithm"]["term"]  # of a run before there was a choice
    assert from_config(config).algorithm == fl.FedProx(0.3)


def test_theorems_are_not_about_it():
    e = experiment(
        "quadratics", fl.FedProx(0.3, term="linear"), solver=fl.GD(0.1, steps=3), cohort=fl.cohorts.everyone()
    )
    said = from_theory(e, keep=["algorithm.mu"]).sentences
    assert "FedProx has term = 'linear'." in " ".join(said)
