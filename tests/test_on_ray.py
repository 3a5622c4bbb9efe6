"""The engine on a real cluster of two nodes: the same numbers as `simulate`, whoever dies."""

import random

import jax
import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts
from fedloom.systems import Faults, System
from fedloom.testing import relative_difference, usual_solver
from tests.cases import CASES
from tests.federations import FEDERATION, W, bits, last, least_squares
from tests.ray_cluster import kill, later, two_nodes
from tests.test_engines import MINIBATCH, RULES

pytest.importorskip("ray", reason="needs Ray: pip install 'fedloom[ray]'")


@pytest.fixture(scope="module")
def cluster():
    with two_nodes() as found:
        yield found


def assert_equal(one, two):
    assert relative_difference(two.server, one.server) < 1e-12
    assert two.counters == one.counters
    assert [c.tolist() for c in two.cohort] == [c.tolist() for c in one.cohort]
    assert two.dropped == one.dropped
    assert two.unsolved == one.unsolved
    assert two.clock == one.clock
    if one.residual is not None:
        assert abs(two.residual - one.residual) < 1e-12
    assert sorted(two.clients) == sorted(one.clients)
    for k in one.clients:
        assert relative_difference(two.clients[k], one.clients[k]) < 1e-12


def pairs():
    """Every algorithm with a rule in turn; a few in short."""
    for i, (name, case) in enumerate(CASES.items()):
        rules = [r for r in RULES if r != "stragglers" and (r == "everyone" or not case.algorithm.needs_everyone)]
        marks = () if name in ("scaffold-II", "feddane", "feddr") else pytest.mark.exhaustive
        yield pytest.param(case, RULES[rules[i % len(rules)]], id=f"{name}, {rules[i % len(rules)]}", marks=marks)


@pytest.mark.parametrize(("case", "rule"), list(pairs()))
def test_equals_simulate(cluster, case, rule):
    solver = case.solver or usual_solver(case.algorithm)
    args = (case.algorithm, FEDERATION, solver, W, 3)
    one = last(fl.simulate, *args, cohort=rule, seed=5)
    assert_equal(one, last(fl.on_ray, *args, cohort=rule, seed=5, shards=3))
