"""SCAFFOLD's divisor: what it remembers, that it still finds the optimum, and what it allows a solver to be."""

import tomllib

import numpy as np
import pytest

import fedloom as fl
from fedloom.diagnosis import from_theory
from fedloom.experiments import experiment, from_config
from fedloom.testing import relative_difference
from tests.federations import FEDERATION, W, last, least_squares

STEPS, LR = 3, 0.1
SUM = STEPS * LR  # of the step sizes
engines = pytest.mark.parametrize("engine", [fl.simulate, fl.reference], ids=["simulate", "reference"])


@engines
@pytest.mark.parametrize("first_contact", ["zero", "c"])
def test_divided_by_the_sum_of_the_steps_it_is_the_paper_s(engine, first_contact):
    solver = fl.GD(LR, steps=STEPS)
    ends = [
        last(engine, fl.Scaffold(0.9, first_contact=first_contact, divisor=d), FEDERATION, solver, W, 5).w
        for d in (None, SUM)
    ]
    assert relative_difference(*ends) < 1e-14


@engines
def test_a_larger_divisor_mixes_old_and_new(engine):
    """c_k+ = (1 - r) (c_k - c) + r g_k, where g_k is the mean of the gradients on the way and r = sum / divisor.

    With one step g_k is the gradient at w, so that all can be computed here.
    """
    ratio, rounds = 0.4, 3
    algorithm, solver = fl.Scaffold(divisor=LR / ratio), fl.GD(LR, steps=1)
    record = last(engine, algorithm, FEDERATION, solver, W, rounds)
    hessians, centers, p = (np.asarray(x) for x in (FEDERATION.hessians, FEDERATION.centers, FEDERATION.weights))
    w, c_k = np.asarray(W), np.zeros_like(centers)
    for _ in range(rounds):
        g = np.stack([a @ (w - b) for a, b in zip(hessians, centers, strict=True)])
        c = p @ c_k
        w, c_k = w - LR * p @ (g + c - c_k), (1 - ratio) * (c_k - c) + ratio * g
    assert relative_difference(record.w, w) < 1e-12
    assert relative_difference(record.server.c, p @ c_k) < 1e-12


def test_the_optimum_stays_the_fixed_point():
    """A memory that lags is right in the limit: at the optimum nothing moves, from anywhere it is found."""
    hessians, centers, p = (np.asarray(x) for x in (FEDERATION.hessians, FEDERATION.centers, FEDERATION.weights))
    optimum = np.linalg.solve(np.einsum("k,kij->ij", p, hessians), np.einsum("k,kij,kj->i", p, hessians, centers))
    solver = fl.GD(LR, steps=STEPS)
    w = last(fl.simulate, fl.Scaffold(divisor=2 * SUM), FEDERATION, solver, W, 600, chunk=200).w
    assert relative_difference(w, optimum) < 1e-9
    biased = last(fl.simulate, fl.FedAvg(), FEDERATION, solver, W, 600, chunk=200).w
    assert relative_difference(biased, optimum) > 1e-3  # which the correction takes away


@engines
def test_clipped_steps_are_allowed_with_it(engine):
    """Without a divisor they are refused; where nothing is clipped, both are the same."""
    federation, w = least_squares(), np.ones(4)
    clipped = fl.SGD(LR, steps=STEPS, clip=1e6)
    with pytest.raises(ValueError, match=r"needs a solver that offers lr_sum.*option I and its divisor"):
        last(engine, fl.Scaffold(), federation, clipped, w, 1)
    ours = last(engine, fl.Scaffold(divisor=SUM), federation, clipped, w, 4).w
    plain = last(engine, fl.Scaffold(), federation, fl.SGD(LR, steps=STEPS), w, 4).w
    assert relative_difference(ours, plain) < 1e-12
    tight = last(engine, fl.Scaffold(divisor=SUM), federation, fl.SGD(LR, steps=STEPS, clip=0.01), w, 1).w
    assert np.linalg.norm(np.asarray(tight) - w) <= 0.01 * SUM * (1 + 1e-12)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"divisor": 0.0}, "Scaffold: divisor must be"),
        ({"divisor": -1.0}, "Scaffold: divisor must be"),
        ({"divisor": 1.0, "option": "I"}, "Scaffold: divisor is of option II"),
        ({"option": "III"}, "Scaffold: option must be one of"),
    ],
)
def test_what_is_refused(fields, words):
    with pytest.raises(ValueError, match=words):
        fl.Scaffold(**fields)


def test_it_is_written_and_read():
    e = experiment("quadratics", fl.Scaffold(divisor=60.0))
    config = tomllib.loads(e.to_toml())
    assert config["algorithm"]["divisor"] == 60.0
    assert from_config(config) == e
    del config["algorithm"]["divisor"]
    assert from_config(config).algorithm == fl.Scaffold()


def test_theorems_are_not_about_it():
    e = experiment("quadratics", fl.Scaffold(divisor=1.0), solver=fl.GD(LR, steps=STEPS), cohort=fl.cohorts.everyone())
    said = from_theory(e).sentences
    assert "Scaffold has divisor = 1.0." in " ".join(said)
