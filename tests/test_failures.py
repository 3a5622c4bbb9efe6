"""A client that fails is named, and never poisons the model."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts
from fedloom.hyperparameters import frozen
from fedloom.testing import imbalance, relative_difference
from tests.federations import FEDERATION, W, bits, least_squares


@frozen
class Poison(fl.FedDR):
    """Client 4 returns NaN from the second round on."""

    def local(self, w, k, client):
        reply, memory = super().local(w, k, client)
        bad = (client.t >= 1) & jnp.all(client.objective.center == FEDERATION.centers[4])
        return jnp.where(bad, jnp.nan, reply), memory


@pytest.mark.parametrize("engine", [fl.simulate, fl.reference])
@pytest.mark.parametrize("chunk", [1, 3])
def test_a_nan_is_named(engine, chunk):
    more = {"chunk": chunk} if engine is fl.simulate else {}
    run = engine(Poison(2.0), FEDERATION, fl.Exact(), W, 3, **more)
    with pytest.raises(fl.NonFiniteUpdate, match=r"Client 4 .* round 2, .*'train'.*drop"):
        list(run)


def test_a_dropped_client_leaves_no_trace():
    """Its reply is not counted, its memory not committed: the invariant holds, as if it had not been in the cohort."""
    trace = [[1, 4], [1, 4, 5], [2, 4], [4, 6]]
    without = [[1, 4], [1, 5], [2], [6]]
    without = fl.simulate(fl.FedDR(2.0), FEDERATION, fl.Exact(), W, 4, cohort=cohorts.scheduled(without))
    kept = [r.keep() for r in without]
    for engine in (fl.simulate, fl.reference):
        run = engine(Poison(2.0), FEDERATION, fl.Exact(), W, 4, cohort=cohorts.scheduled(trace), on_nonfinite="drop")
        for record, twin in zip(run, kept, strict=True):
            assert relative_difference(record.server, twin.server) < 1e-12
            assert imbalance(record, fl.FedDR(2.0), FEDERATION, W) < 1e-12
            assert sorted(record.clients) == sorted(twin.clients)
            assert record.dropped == (() if record.round == 1 else ((record.round, 4, "train"),))


def test_a_round_in_which_nobody_counts_changes_nothing():
    for engine in (fl.simulate, fl.reference):
        rule = cohorts.scheduled([[4], [4]])
        first, second = engine(Poison(2.0), FEDERATION, fl.Exact(), W, 2, cohort=rule, on_nonfinite="drop")
        assert bits(first.server) == bits(second.server)
        assert np.isfinite(second.w).all()


@frozen
class BlindFedDANE(fl.FedDANE):
    """No gradient arrives in the first round."""

    def gradient(self, w, memory, client):
        g, memory = super().gradient(w, memory, client)
        return jnp.where(client.t == 0, jnp.nan, g), memory


@pytest.mark.parametrize("engine", [fl.simulate, fl.reference])
def test_an_exchange_in_which_nobody_counts_ends_the_round(engine):
    """Without g the second exchange would correct nothing: the first round must leave w; the second is ordinary."""
    args = (FEDERATION, fl.Exact(), W, 2)
    first, second = engine(BlindFedDANE(mu=0.5), *args, on_nonfinite="drop")
    assert np.array_equal(first.w, W)
    ordinary = next(engine(fl.FedDANE(mu=0.5), *args))
    np.testing.assert_allclose(second.w, ordinary.w, rtol=0, atol=1e-12)


def test_divergence_is_an_error_not_a_model():
    with pytest.raises(fl.NonFiniteUpdate, match="Use smaller step sizes"):
        list(fl.simulate(fl.FedAvg(), FEDERATION, fl.GD(100.0, 50), W, 20))


@pytest.mark.parametrize("engine", [fl.simulate, fl.reference])
def test_after_a_nan_the_last_kept_record_can_be_resumed(engine):
    args = (Poison(2.0), FEDERATION, fl.Exact(), W, 4)
    rule = cohorts.scheduled([[1, 4], [1, 4, 5], [2, 4], [4, 6]])
    run = engine(*args, cohort=rule)
    good = next(run).keep()
    with pytest.raises(fl.NonFiniteUpdate):
        next(run)
    resumed = list(engine(*args, cohort=rule, resume=good, on_nonfinite="drop"))[-1]
    whole = list(engine(*args, cohort=rule, on_nonfinite="drop"))[-1]
    assert bits(resumed.server) == bits(whole.server)


@pytest.mark.parametrize("engine", [fl.simulate, fl.reference])
def test_clients_without_weight_change_nothing(engine):
    """p_k = 0 is allowed; a cohort of such clients alone has no mean, so neither server nor memory moves."""
    light = dataclasses.replace(FEDERATION, weights=np.array([0.0, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0]))
    record = next(engine(fl.FedDR(2.0), light, fl.Exact(), W, 1, cohort=cohorts.scheduled([[0, 3]])))
    assert np.array_equal(record.w, W)
    assert len(record.clients) == 0


@pytest.mark.parametrize("engine", [fl.simulate, fl.reference])
def test_a_server_that_overflows_is_named(engine):
    """All replies are finite, the server's own arithmetic is not."""
    run = engine(fl.FedAvg(lr=1e308), FEDERATION, fl.GD(1.0, 1), 1e3 * W, 1)
    with pytest.raises(fl.NonFiniteUpdate, match=r"server's state .* round 1, .*'train'"):
        list(run)


def test_an_error_while_compiling_names_the_exchange():
    @frozen
    class Broken(fl.FedAvg):
        def local(self, w, memory, client):
            raise ZeroDivisionError("oops")

    with pytest.raises(ZeroDivisionError) as caught:
        list(fl.simulate(Broken(), FEDERATION, fl.GD(), W, 1))
    assert "Exchange 'train' of" in "".join(caught.value.__notes__)


def test_an_error_inside_a_client_is_named():
    @frozen
    class Broken(fl.FedAvg):
        def local(self, w, memory, client):
            if client.t == 1:
                raise ZeroDivisionError("oops")
            return super().local(w, memory, client)

    run = fl.reference(Broken(), FEDERATION, fl.GD(), W, 3, cohort=cohorts.scheduled([[0], [3, 5], [1]]))
    with pytest.raises(fl.ClientError, match=r"Client 3, round 2, .*'train': ZeroDivisionError: oops") as caught:
        list(run)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_the_reference_engine_is_ordinary_python():
    """Values are concrete inside `local` and inside the solver: print and breakpoints work."""
    seen = []

    @frozen
    class Curious(fl.FedAvg):
        def local(self, w, memory, client):
            dw, memory = super().local(w, memory, client)
            seen.append(float(dw[0]))
            return dw, memory

    list(fl.reference(Curious(), least_squares(), fl.SGD(0.1, batch_size=4), W, 1))
    assert len(seen) == 5
