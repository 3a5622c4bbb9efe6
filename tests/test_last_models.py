"""Clients that remember what their last solve ended with: the method stays what it is, and these models are right."""

import dataclasses
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts, metrics
from fedloom.algorithms.last_models import LastModels, keeping_models
from fedloom.client import Solver
from fedloom.engines.checks import checked
from fedloom.engines.plan import Plan
from fedloom.engines.split_solve import splits
from fedloom.experiments import experiment, extend, resume, run, sweep
from fedloom.hyperparameters import for_client, frozen, per_client_fields
from fedloom.systems import System
from fedloom.tasks.figures import ClientModels
from fedloom.testing import check_algorithm, relative_difference, stacked, usual_solver
from tests import transcriptions as numpy_version
from tests.cases import CASES, MU_K, VARIANTS
from tests.federations import FEDERATION, W, bits, last, least_squares

EVERY = CASES | VARIANTS
TRAINING = {name: case for name, case in EVERY.items() if case.name not in ("fedsgd", "feddyn-onegd")}
RULES = (cohorts.uniform(3), cohorts.with_replacement(3), cohorts.stragglers(of=cohorts.uniform(4), share=0.5))


def rule_for(case, i):
    """One of the rules, with a solver that can do what it asks for."""
    rule = cohorts.everyone() if case.algorithm.needs_everyone else RULES[i % len(RULES)]
    solver = case.solver or usual_solver(case.algorithm)
    return rule, fl.GD(0.2, 3) if rule.partial_work and "work" not in solver.offers else solver


def same_method(plain, wrapped):
    """Server, counters, who took part, and the method's own memories."""
    assert relative_difference(plain.server, wrapped.server) < 1e-12
    assert plain.counters == wrapped.counters
    assert [c.tolist() for c in plain.cohort] == [c.tolist() for c in wrapped.cohort]
    for k in plain.clients:
        assert relative_difference(plain.clients[k], wrapped.clients[k].of) < 1e-12


@pytest.mark.parametrize("name", [n for n, case in TRAINING.items() if case.algorithm.tolerates_staleness][::3])
def test_the_method_stays_what_it_is_when_replies_are_late(name):
    case = TRAINING[name]
    solver = case.solver or usual_solver(case.algorithm)
    system = System(speeds=tuple(1 / np.sqrt([2.0, 11.0, 3.0, 7.0, 5.0, 13.0, 1.0])))
    runs = [
        last(fl.events, a, FEDERATION, solver, W, 6, cohort=cohorts.uniform(4), seed=2, buffer=2, system=system)
        for a in (case.algorithm, LastModels(case.algorithm))
    ]
    assert max(np.flatnonzero(runs[0].clock.staleness)) > 0  # some were late
    same_method(*runs)
    assert runs[0].clock == runs[1].clock


@frozen
class Noting(Solver):
    """A solver that notes what it ends with. Only for the reference engine, where everything is a number."""

    of: Solver
    ends: list = dataclasses.field(metadata={"static": True})

    @property
    def offers(self):
        return self.of.offers

    def solve(self, *args):
        solution = self.of.solve(*args)
        self.ends.append(np.asarray(solution.w))
        return solution


def every():
    for i, name in enumerate(TRAINING):
        usual = name in CASES or name == "fedprox-mu_k"
        yield pytest.param(TRAINING[name], i, id=name, marks=() if usual else pytest.mark.exhaustive)


@pytest.mark.parametrize(("case", "i"), list(every()))
def test_the_method_stays_what_it_is_and_its_solves_are_remembered(case, i):
    """With partial cohorts, clients drawn twice, and stragglers; against the plain method, whose solver tells."""
    algorithm = case.algorithm
    rule, solver = rule_for(case, i)
    ends, models = [], np.tile(W, (FEDERATION.clients, 1))
    for plain in fl.reference(algorithm, FEDERATION, Noting(solver, ends), W, 3, cohort=rule, seed=5):
        members = plain.cohort[-1]  # who train, in this order
        assert len(ends) == len(members)
        models[members] = ends
        ends.clear()
    for engine in (fl.reference, fl.simulate):
        wrapped = last(engine, LastModels(algorithm), FEDERATION, solver, W, 3, cohort=rule, seed=5)
        same_method(plain, wrapped)
        found = np.asarray(stacked(wrapped, LastModels(algorithm), W, FEDERATION.clients).v)
        np.testing.assert_allclose(found, models, rtol=0, atol=1e-12)


def feddyn(clients, w, trace, alpha):
    """FedDyn in NumPy with exact solves; the clients' last models beside the server's."""
    m = len(clients.p)
    g, models, h, theta = np.zeros((m, len(w))), np.tile(w, (m, 1)), np.zeros(len(w)), np.array(w)
    for members in trace:
        for k in members:
            a = clients.A[k] + alpha * np.eye(len(w))
            models[k] = np.linalg.solve(a, clients.A[k] @ clients.b[k] + g[k] + alpha * theta)
        h = h - alpha * sum(clients.p[k] * (models[k] - theta) for k in members)
        for k in members:
            g[k] -= alpha * (models[k] - theta)
        q = clients.p[members] / clients.p[members].sum()
        theta = q @ models[members] - h / alpha
    return theta, models


def test_feddyns_three_models_against_numpy():
    """The server's, the cohort's mean, and the mean of all last models, which is FedDyn's published one."""
    trace = [[0, 3], [3, 5], [1, 0], [6, 3]]
    clients = numpy_version.Federation(FEDERATION.hessians, FEDERATION.centers, FEDERATION.weights)
    theta, models = feddyn(clients, np.asarray(W), trace, 0.3)
    algorithm = LastModels(fl.FedDyn(0.3))
    record = last(fl.simulate, algorithm, FEDERATION, fl.Exact(), W, 4, cohort=cohorts.scheduled(trace))
    np.testing.assert_allclose(record.w, theta, atol=1e-12)
    np.testing.assert_array_equal(models[[2, 4]], np.tile(W, (2, 1)))  # they never took part
    found = ClientModels(algorithm, W, FEDERATION.weights, record.clients)
    np.testing.assert_allclose(found.mean, FEDERATION.weights @ models, atol=1e-12)
    assert found.consensus_error() == pytest.approx(metrics.consensus_error(models, FEDERATION.weights), rel=1e-12)
    nobody = ClientModels(algorithm, W, FEDERATION.weights, {})
    np.testing.assert_array_equal(nobody.mean, W)
    assert nobody.consensus_error() == 0


def test_solves_in_a_loop_are_seen_too():
    """FedPD solves inside client.repeat and keeps what it ends with."""
    algorithm = LastModels(fl.FedPD(eta=2.0, skip=0.6))
    for engine in (fl.reference, fl.simulate):
        for record in engine(algorithm, FEDERATION, fl.GD(0.2, 3), W, 3):
            for memory in (record.clients[k] for k in record.clients):
                np.testing.assert_array_equal(memory.v, memory.of.x)


@pytest.mark.parametrize(
    ("algorithm", "plan"),
    [(fl.Scaffold(), Plan(2)), (fl.FedDANE(mu=0.5, fresh=True), Plan(2, 2))],
    ids=["SCAFFOLD", "FedDANE"],
)
def test_ragged_clients_that_hand_over_lanes(algorithm, plan):
    """Side by side and on several devices, where a lane goes to the next client at any step."""
    args = (LastModels(algorithm), least_squares(), fl.SGD(0.1, batch_size=2), W, 3)
    slow = last(fl.reference, *args, cohort=cohorts.uniform(4), seed=1)
    fast = last(fl.simulate, *args, cohort=cohorts.uniform(4), seed=1, plan=plan)
    assert fast.counters == slow.counters
    assert sorted(fast.clients) == sorted(slow.clients)
    for k in slow.clients:
        assert relative_difference(fast.clients[k], slow.clients[k]) < 1e-12
    assert any(np.any(memory.v != W) for memory in slow.clients.values())


@pytest.mark.parametrize("name", ["scaffold-II", "feddyn-alpha", "feddane"])
def test_the_battery(name):
    case = CASES[name]
    found = check_algorithm(LastModels(case.algorithm), solver=case.solver, transcription=case.transcription)
    assert "transcription" in found
    assert ("invariant" in found) == (name in ("scaffold-II", "feddyn", "feddyn-alpha", "fedsplit-all"))


@pytest.mark.parametrize("algorithm", [fl.FedAvg(), fl.Scaffold(), fl.FedDANE(mu=0.5), fl.FedPD()], ids=repr)
def test_a_solve_is_split_where_that_of_the_method_is(algorithm):
    solver = fl.SGD(0.1, batch_size=4)
    plain, wrapped = (checked(a, least_squares(), solver, W, 1) for a in (algorithm, LastModels(algorithm)))
    for e in range(len(algorithm.exchanges)):
        assert splits(plain, e) == splits(wrapped, e)
    assert splits(wrapped, len(algorithm.exchanges) - 1) != isinstance(algorithm, fl.FedPD)


def test_clients_have_their_own_hyperparameters_inside():
    wrapped = LastModels(fl.FedProx(mu=MU_K))
    assert {name: a.tolist() for name, a in per_client_fields(wrapped).items()} == {"of.mu": MU_K.tolist()}
    assert float(for_client(wrapped, 3).of.mu) == MU_K[3]
    assert for_client(LastModels(fl.FedProx(0.1)), 3) == LastModels(fl.FedProx(0.1))
    with pytest.raises(ValueError, match=r"of.mu has 2 entries for 7 clients"):
        checked(LastModels(fl.FedProx(mu=np.ones(2))), FEDERATION, fl.GD(), W, 1)


def test_what_a_method_says_of_itself():
    for case in EVERY.values():
        algorithm, wrapped = case.algorithm, LastModels(case.algorithm)
        for name in ("exact", "needs", "needs_everyone", "tolerates_staleness", "why_not_stale"):
            assert getattr(wrapped, name) == getattr(algorithm, name)
        for own, other in zip(algorithm.exchanges, wrapped.exchanges, strict=True):
            assert (own.name, own.same_cohort, own.send, own.receive) == (
                *(other.name, other.same_cohort, other.send, other.receive),
            )
            assert own.aged(jnp.ones(()), 2.0) == other.aged(jnp.ones(()), 2.0) if case.name == "fedasync" else True


def test_methods_that_keep_models_are_left_alone_and_those_without_are_refused():
    for algorithm in (fl.FedDR(), fl.FedPD()):
        assert keeping_models(algorithm, W) is algorithm
    assert keeping_models(fl.FedProx(mu=MU_K), W) == LastModels(fl.FedProx(mu=MU_K))
    for case in TRAINING.values():
        keeping_models(case.algorithm, W)
    for algorithm in (fl.FedSGD(), fl.FedDynOneGD()):
        with pytest.raises(ValueError, match=f"clients of {type(algorithm).__name__} never solve a local problem"):
            keeping_models(algorithm, W)
    with pytest.raises(ValueError, match="LastModels: of must be an Algorithm"):
        LastModels(3)


# In experiments.


def small(algorithm="feddyn", **changes):
    given = {"rounds": 6, "evaluate_every": 2, "evaluate": "train,last models,consensus error"}
    return experiment("quadratics", algorithm, **(given | changes))


def log(directory):
    return (pathlib.Path(directory) / "log.jsonl").read_bytes()


@pytest.mark.parametrize("engine", ["simulate", "events"])
def test_a_run_has_the_mean_of_its_clients_last_models(engine):
    method = "feddyn" if engine == "simulate" else "scaffold"
    e = small(method, engine=engine, solver="gd")
    result = run(e)
    plain = run(dataclasses.replace(e, evaluate=("train",)))
    loaded = e.load()
    f, algorithm = loaded.federation, LastModels(e.algorithm)
    args = (algorithm, f, e.solver, loaded.w, 6)
    records = getattr(fl, engine)(*args, cohort=e.cohort, seed=e.seed, chunk=2)
    for row, other, record in zip(result.rows[1:], plain.rows[1:], records, strict=True):
        models = np.asarray(stacked(record, algorithm, loaded.w, f.clients).v)
        mean = np.asarray(f.weights) @ models
        assert row["last models train loss"] == pytest.approx(float(f.loss(jnp.asarray(mean))), rel=1e-12)
        assert row["consensus error"] == pytest.approx(metrics.consensus_error(models, f.weights), rel=1e-12)
        for name in other:  # counters and bytes, too
            assert row[name] == (pytest.approx(other[name], rel=1e-12) if name == "train loss" else other[name])
    first = result.rows[0]
    assert first["last models train loss"] == first["train loss"]
    assert first["consensus error"] == 0


def test_in_the_plain_mean_all_clients_count_alike():
    """Also those that never took part; where clients weigh the same the two means are one."""
    entries = "last models,plain last models train loss"
    e = small("scaffold", evaluate=entries, solver="gd")
    result, loaded, algorithm = run(e), e.load(), LastModels(e.algorithm)
    f = loaded.federation
    record = last(fl.simulate, algorithm, f, e.solver, loaded.w, 6, cohort=e.cohort, seed=e.seed)
    models = np.asarray(stacked(record, algorithm, loaded.w, f.clients).v)
    row = result.rows[-1]
    assert row["plain last models train loss"] == pytest.approx(float(f.loss(jnp.asarray(models.mean(0)))), rel=1e-12)
    assert row["plain last models train loss"] != pytest.approx(row["last models train loss"], rel=1e-3)
    assert len(record.clients) < f.clients

    def means(weights):
        sizes = experiment("synthetic-1-1", "fedavg", rounds=2, evaluate=entries, weights=weights)
        row = run(sizes).rows[-1]
        return row["plain last models train loss"], row["last models train loss"]

    plain, weighted = means("uniform")
    assert plain == pytest.approx(weighted, rel=1e-6)
    plain, weighted = means("examples")
    assert plain != pytest.approx(weighted, rel=1e-2)
    images = experiment("digits", "feddyn", rounds=1, evaluate="plain last models test accuracy,plain last models")
    assert {
        "plain last models test accuracy",
        "plain last models train loss",
    } <= images.check().evaluation.metrics.keys()
    assert run(images).larger_is_better("plain last models test accuracy")


def test_own_models_are_the_last_ones_of_methods_that_keep_them():
    e = small("feddr")
    loaded, ran, evaluation = e.check()
    assert ran.algorithm == evaluation.algorithm == e.algorithm
    record = last(fl.simulate, e.algorithm, loaded.federation, e.solver, loaded.w, 6, cohort=e.cohort, seed=e.seed)
    models = loaded.own_models(e.algorithm, record.clients)
    found = run(e).rows[-1]
    assert found["consensus error"] == pytest.approx(metrics.consensus_error(models, loaded.federation.weights))
    mean = jnp.asarray(np.asarray(loaded.federation.weights) @ models)
    assert found["last models train loss"] == pytest.approx(float(loaded.federation.loss(mean)))


@pytest.mark.parametrize(
    ("method", "more"), [("feddane", {}), ("scaffold", {"engine": "events", "buffer": 2}), ("feddr", {})]
)
def test_a_run_that_was_stopped_ends_with_the_same_bits(tmp_path, method, more):
    """Stopped at its second evaluation, after a checkpoint that has the clients' models."""
    e = experiment("digits", method, rounds=4, evaluate_every=1, evaluate="last models,consensus error", **more)
    whole = run(e, tmp_path / "whole")

    def stop(row):
        if row["round"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(e, tmp_path / "stopped", watch=[stop], checkpoint_seconds=0)
    assert (tmp_path / "stopped/checkpoint.npz").exists()
    again = resume(tmp_path / "stopped")
    assert log(tmp_path / "stopped") == log(tmp_path / "whole")
    assert bits(again.w) == bits(whole.w)


def test_a_run_gets_more_rounds_from_where_its_clients_are(tmp_path):
    e = experiment("digits", "feddyn", rounds=2, evaluate_every=1, evaluate="last models test accuracy")
    run(e, tmp_path / "a")
    extend(tmp_path / "a", rounds=4)
    run(dataclasses.replace(e, rounds=4), tmp_path / "b")
    assert log(tmp_path / "a") == log(tmp_path / "b")


def test_points_of_a_sweep_that_need_memories_run_alone(tmp_path):
    e = small(rounds=2)
    study = sweep(e, {"algorithm.alpha": [0.1, 0.3]}, directory=tmp_path / "s")
    for result in study.results:
        assert result.rows == run(result.experiment).rows
        assert result.rows[-1]["consensus error"] > 0


def test_blocks_of_the_mean_of_last_models_are_in_the_log():
    e = experiment("digits", "feddyn", rounds=1, evaluate="test accuracy,last models test")
    row = run(e).rows[-1]
    assert row["test blocks"].keys() == {"test accuracy", "last models test accuracy", "last models test loss"}
    blocks = row["test blocks"]["last models test accuracy"]
    assert np.mean(blocks) == pytest.approx(row["last models test accuracy"], abs=1e-5)
