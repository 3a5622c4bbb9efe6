"""Plans: what may be asked for, what is chosen, and what is remembered."""

import json

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts
from fedloom.engines import choose_plan, time_plans
from fedloom.engines.checks import checked
from fedloom.engines.costs import LocalSteps
from fedloom.engines.packing import ALONE, Packer, duration, wasted
from fedloom.engines.plan import Plan, check_plan
from fedloom.models.blocks import conv_relu
from tests.federations import FEDERATION, W, last, least_squares

RAGGED = least_squares()


def run_of(federation=RAGGED, solver=None, rounds=10, cohort=None, resume=None):
    solver = solver or fl.SGD(0.1, batch_size=4)
    return checked(fl.FedAvg(), federation, solver, W, rounds, cohort=cohort, resume=resume)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "fedloom" / "plans"


@pytest.mark.parametrize("field", ["lanes", "devices"])
@pytest.mark.parametrize("bad", [0, -1, "a", 1.0, None])
def test_a_plan_is_checked(field, bad):
    with pytest.raises(ValueError, match=rf"Plan: {field} must be a positive integer, got {bad!r}\."):
        Plan(**{"lanes": 1, "devices": 1, field: bad})


def test_plans_in_words():
    for plan, text, words in [
        (Plan(1), "1", "1 lane"),
        (Plan(5), "5x1", "5 lanes"),
        (Plan(5, 2), "5x2", "5 lanes on each of 2 devices"),
        (Plan(1, 3), "1x3", "1 lane on each of 3 devices"),
    ]:
        assert Plan.from_text(text) == plan
        assert str(plan) == words
    for text in ("5y2", "", "x", "5x", "x2", "1x2x3", "-1", "1.5", "5 x 2"):
        with pytest.raises(ValueError, match=rf"plan must be LANES or LANESxDEVICES, e\.g\. 5x2, got '{text}'\."):
            Plan.from_text(text)
    with pytest.raises(ValueError, match="lanes must be a positive integer"):
        Plan.from_text("0x2")


def test_a_plan_that_cannot_be_had():
    too_many = jax.local_device_count() + 1
    args = (fl.FedAvg(), FEDERATION, fl.GD(), W, 1)
    with pytest.raises(ValueError, match=rf'not {too_many}.*jax.config.update\("jax_num_cpu_devices", {too_many}\)'):
        fl.simulate(*args, plan=Plan(1, too_many))
    with pytest.raises(TypeError, match=r"plan must be a Plan, e\.g\. Plan\(lanes=4, devices=2\), got '2x1'"):
        fl.simulate(*args, plan="2x1")
    check_plan(Plan(1000, jax.local_device_count()))


def test_sizes_are_those_of_the_clients():
    for federation, sizes in ((RAGGED, [3, 9, 1, 6, 5]), (FEDERATION, [1] * 7)):
        run = run_of(federation)
        steps = LocalSteps(run)
        assert steps.sizes.tolist() == sizes
        assert steps.capacity == max(sizes)


# The rule.


def ruled(run, operations, steps=1e6):
    return choose_plan.rule(run, operations, steps)


def test_the_rule(monkeypatch):
    equal, ragged = run_of(FEDERATION), run_of(RAGGED, fl.SGD(0.1, batch_size=1))
    for devices in (1, 2, 3):
        monkeypatch.setattr(jax, "local_device_count", lambda n=devices: n)
        assert ruled(equal, choose_plan.LARGE_STEP) == Plan(1, devices)
        assert ruled(equal, choose_plan.LARGE_STEP / 2) == Plan(-(-7 // devices), devices)
        assert ruled(equal, 10.0, steps=10.0) == Plan(7)  # too little to be shared
        chosen = ruled(ragged, 1e3)
        assert chosen.devices == devices
        assert chosen.lanes * devices <= max(24 / 9, devices)  # 24 steps, of which one client takes 9
    monkeypatch.setattr(jax, "local_device_count", lambda: 100)
    assert ruled(equal, choose_plan.LARGE_STEP) == Plan(1, 7)  # not more devices than clients
    many = run_of(fl.quadratics(clients=1000, dimension=4))
    monkeypatch.setattr(jax, "local_device_count", lambda: 1)
    assert ruled(many, 1e3) == Plan(choose_plan.MOST_LANES)


@pytest.mark.parametrize("rule", [cohorts.uniform(10), cohorts.bernoulli(0.1)], ids=str)
def test_clients_of_similar_sizes_run_side_by_side(monkeypatch, rule):
    """Few have to run alone, although all take different numbers of steps, and little is computed for nobody."""
    monkeypatch.setattr(jax, "local_device_count", lambda: 1)
    federation = least_squares(tuple(np.random.default_rng(0).integers(8, 13, 100).tolist()))
    run = run_of(federation, fl.SGD(0.1, batch_size=1), rounds=30, cohort=rule)
    packer, steps, took, one_by_one = Packer(run, ruled(run, 1e3)), LocalSteps(run), 0.0, 0.0
    for t in range(30):
        (draw,) = run.cohorts(t)
        packing, own = packer(draw, run.cohort_room), steps(draw.ids, draw.work)
        assert wasted(packing, own) < 0.1
        took, one_by_one = took + duration(packing), one_by_one + ALONE * own.sum()
    assert took < 0.6 * one_by_one


def test_short_runs_are_not_measured(monkeypatch):
    monkeypatch.setattr(choose_plan, "measure", lambda *args: pytest.fail("It was measured."))
    for run in (run_of(), run_of(FEDERATION), run_of(cohort=cohorts.uniform(3)), run_of(rounds=0)):
        assert choose_plan.planned(run).plan == choose_plan.planned(run).plan
    assert choose_plan.planned(run_of(solver=fl.ToTolerance(), rounds=10**12)).plan.lanes == 5
    slow = cohorts.stragglers(of=cohorts.everyone(), share=0.5)
    assert choose_plan.planned(run_of(solver=fl.ToTolerance(), cohort=slow)).plan.lanes == 5


def test_a_step_is_counted_by_its_arithmetic():
    """x w - y for a batch of b rows and its gradient: 4 b d operations and a little more."""
    x, y = np.ones((64, 100)), np.ones(64)
    federation = fl.examples((x, y), [64], lambda w, rows, key: (rows[0] @ w - rows[1]) ** 2)
    one, two = (
        choose_plan.step_operations(checked(fl.FedAvg(), federation, fl.SGD(0.1, batch_size=b), np.zeros(100), 1))
        for b in (16, 32)
    )
    assert 4 * 16 * 100 < two - one < 8 * 16 * 100


def test_a_finished_run_needs_no_cohort():
    """A trace has no round beyond the last, so none may be asked for."""
    trace = cohorts.scheduled([[0], [1]])
    args = (fl.FedAvg(), FEDERATION, fl.GD(), W, 2)
    done = last(fl.simulate, *args, cohort=trace)
    assert list(fl.simulate(*args, cohort=trace, resume=done)) == []


# Measuring, and what is remembered.


@pytest.fixture
def long(monkeypatch):
    """Every run is worth measuring, and a plan's seconds depend on its lanes and devices."""
    timed = []
    monkeypatch.setattr(choose_plan, "LONG_RUN", 0)

    class Watch:
        def __init__(self, run, operations):
            pass

        def prepare(self, plan):
            return self.seconds(plan)

        def seconds(self, plan):
            timed.append(plan)
            return 1 + 0.1 * abs(plan.lanes - 2) + 0.1 * plan.devices

    monkeypatch.setattr(choose_plan, "Stopwatch", Watch)
    return timed


def test_what_was_measured_is_remembered(long, cache):
    run, said = run_of(), []
    assert choose_plan.planned(run, said.append).plan == Plan(2, 1)
    assert len(said) >= 3
    assert set(long) >= {Plan(1), Plan(2), Plan(-(-run.cohort_room // 2))}
    assert len(long) > len(said) * time_plans.FEWEST  # they took turns
    (kept,) = cache.iterdir()
    assert json.loads(kept.read_text()) == {"lanes": 2, "devices": 1}
    kept.write_text('{"lanes": 3, "devices": 1}')
    assert choose_plan.planned(run).plan == Plan(3)
    other = run_of(solver=fl.SGD(0.1, batch_size=2))
    assert choose_plan.remembered(other) is None
    assert choose_plan.remembered(run_of(least_squares((3, 9, 1, 6, 6)))) is None
    assert choose_plan.remembered(run_of(cohort=cohorts.uniform(2))) is None


def test_lanes_between_one_and_all_are_tried(long, monkeypatch):
    """Also where a single lane is slow beside the rule's plan."""
    run = run_of(FEDERATION)
    assert choose_plan.rule(run, 10.0, 10.0) == Plan(7)
    times = {1: 3.0, 2: 1.5, 3: 1.2, 4: 0.8, 7: 1.0}
    monkeypatch.setattr(choose_plan.Stopwatch, "seconds", lambda self, plan: times[plan.lanes] + 2 * (plan.devices - 1))
    monkeypatch.setattr(choose_plan, "step_operations", lambda run: 10.0)
    assert choose_plan.measured(run).plan == Plan(4)


def test_a_model_is_known_again_in_another_process(long):
    """By its name and shapes, not by where its functions happen to lie in memory."""
    choose_plan.planned(run_of(least_squares()))
    assert choose_plan.remembered(run_of(least_squares())) == Plan(2)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", "7", "{}", '{"lanes": 2}', '{"lanes": 0, "devices": 1}', "\0", '{"lanes": "2"}']
)
def test_a_damaged_memory_is_no_memory(long, cache, content):
    run = run_of()
    choose_plan.planned(run)
    (kept,) = cache.iterdir()
    kept.write_text(content)
    assert choose_plan.remembered(run) is None
    assert choose_plan.planned(run).plan == Plan(2)
    assert json.loads(kept.read_text()) == {"lanes": 2, "devices": 1}


def test_a_plan_of_another_machine_is_not_used(long, cache):
    """One with more devices than there are would only fail later."""
    run = run_of()
    choose_plan.planned(run)
    (kept,) = cache.iterdir()
    kept.write_text(json.dumps({"lanes": 2, "devices": jax.local_device_count() + 1}))
    assert choose_plan.planned(run).plan == Plan(2)


def test_a_cache_that_cannot_be_written_is_no_harm(long, tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert choose_plan.planned(run_of()).plan == Plan(2)
    assert choose_plan.remembered(run_of()) is None


def test_no_home_is_no_harm(long, monkeypatch):
    """As in a container that runs under a number that is nobody's."""
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "~")

    def nobody(name):
        raise KeyError(name)

    monkeypatch.setattr("pwd.getpwuid", nobody)
    monkeypatch.delenv("HOME")
    assert choose_plan.planned(run_of()).plan == Plan(2)


# On a machine that is disturbed.


def disturbed(rng):
    """Makes times longer: by a little always, and half of the time, in stretches, by a lot."""
    busy = [False]

    def longer(seconds):
        if rng.random() < 0.35:
            busy[0] = rng.random() < 0.5
        return seconds * (rng.uniform(1.3, 2.5) if busy[0] else 1.0) * np.exp(abs(rng.normal(0, 0.05)))

    return longer


def a_choice(seed):
    """How much longer the chosen plan takes than the best, and whether that counts as clear; times are made up."""
    rng = np.random.default_rng(seed)
    plans = [Plan(i + 1) for i in range(rng.integers(2, 8))]
    true = {plan: float(np.exp(rng.normal(0, 0.3))) for plan in plans}
    longer = disturbed(rng)
    choice = time_plans.fastest(plans, plans[rng.integers(len(plans))], lambda plan: longer(true[plan]))
    return true[choice.plan] / min(true.values()), choice.clear


def test_disturbed_timings_do_not_mislead():
    choices = [a_choice(seed) for seed in range(500)]
    assert sum(worse > 1.1 for worse, _ in choices) <= 3
    assert sum(not clear for _, clear in choices) <= 25


def test_a_plan_without_a_time_does_not_win():
    """A time of next to nothing, once, is a mistake of the clock or of a subtraction."""
    times = {Plan(1): [1.0] * 99, Plan(2): [1e-9] + [2.0] * 99}
    assert time_plans.fastest(list(times), Plan(1), lambda plan: times[plan].pop(0)).plan == Plan(1)


def test_the_usual_plan_is_kept_unless_another_is_clearly_faster():
    for other, taken in ((0.99, Plan(1)), (0.96, Plan(1)), (0.9, Plan(2))):
        choice = time_plans.fastest([Plan(1), Plan(2)], Plan(1), {Plan(1): 1.0, Plan(2): other}.__getitem__)
        assert (choice.plan, choice.clear) == (taken, True)


def test_what_is_not_clear_is_not_remembered(cache, monkeypatch):
    rng = np.random.default_rng(0)
    monkeypatch.setattr(choose_plan, "LONG_RUN", 0)
    monkeypatch.setattr(choose_plan.Stopwatch, "prepare", lambda self, plan: 1.0)
    monkeypatch.setattr(choose_plan.Stopwatch, "seconds", lambda self, plan: float(np.exp(rng.normal(0, 1))))
    run = run_of()
    usual = choose_plan.rule(run, choose_plan.step_operations(run), choose_plan.steps_of_round(run))
    assert choose_plan.planned(run).plan == usual
    assert not cache.exists() or not list(cache.iterdir())


def test_widths():
    assert choose_plan._widths(1) == [1]
    assert choose_plan._widths(10) == [1, 2, 3, 5, 10]
    assert choose_plan._widths(8) == [1, 2, 4, 8]
    assert choose_plan._widths(300)[-1] == choose_plan.MOST_LANES


def test_it_is_measured_indeed(cache):
    """On a trace shorter than what is looked at otherwise; the plan is one of the candidates, and works."""
    trace = cohorts.scheduled([[0, 1], [1, 2]])
    plan = choose_plan.measure(run_of(rounds=2, cohort=trace))
    assert plan.lanes in (1, 2)
    assert plan.devices in (1, 2)
    if cache.exists():  # unless the machine was so disturbed that nothing was clear
        (kept,) = cache.iterdir()
        assert json.loads(kept.read_text()) == {"lanes": plan.lanes, "devices": plan.devices}
    last(fl.simulate, fl.FedAvg(), RAGGED, fl.SGD(0.1, batch_size=4), W, 2, cohort=trace, plan=plan)


@pytest.mark.parametrize("engine", [fl.simulate, fl.events])
def test_a_resumed_run_keeps_the_plan_of_its_record(engine):
    """The same bits need the same plan, also where another one would be chosen now."""
    args, more = (fl.FedAvg(), RAGGED, fl.SGD(0.1, batch_size=2), W), {"cohort": cohorts.uniform(3)}
    half = list(engine(*args, 2, plan=Plan(3), **more))[-1]
    assert next(engine(*args, 1, **more)).origin.plan != Plan(3)
    rest = list(engine(*args, 4, resume=half, **more))[-1]
    assert rest.origin.plan == Plan(3)
    other = list(engine(*args, 4, resume=half, plan=Plan(1), **more))[-1]  # unless one is given
    assert other.origin.plan == Plan(1)


def test_a_record_from_a_larger_machine_says_what_it_needs(monkeypatch):
    args = fl.FedAvg(), RAGGED, fl.SGD(0.1, batch_size=2), W
    half = list(fl.simulate(*args, 2, plan=Plan(2, 2)))[-1]
    monkeypatch.setattr(jax, "local_device_count", lambda: 1)
    with pytest.raises(ValueError, match="this machine has 1 devices, not 2"):
        fl.simulate(*args, 4, resume=half)
    assert list(fl.simulate(*args, 4, resume=half, plan=Plan(2)))[-1].round == 4


def test_the_operations_of_a_step_are_counted_once_for_all_processes(cache, monkeypatch):
    run = run_of()
    choose_plan._operations.clear()
    counted = choose_plan.step_operations(run)
    assert counted > 0

    def fail(*args):
        raise AssertionError("counted again")

    choose_plan._operations.clear()  # as in another process
    monkeypatch.setattr(choose_plan, "_count", fail)
    assert choose_plan.step_operations(run) == counted
    for path in (cache.parent / "operations").iterdir():
        path.write_text("[")  # damaged: it is counted again
    choose_plan._operations.clear()
    with pytest.raises(AssertionError, match="counted again"):
        choose_plan.step_operations(run)


def test_the_operations_of_convolutions_in_c_plus_plus_are_counted(compiler, monkeypatch):
    monkeypatch.setattr(choose_plan, "_kept", lambda *of: None)
    rows = jnp.zeros((8, 12, 12, 16), jnp.float32)
    params = {"w": jnp.zeros((3, 3, 16, 32), jnp.float32), "b": jnp.zeros(32, jnp.float32)}
    flat, unravel = jax.flatten_util.ravel_pytree(params)

    def counted():
        choose_plan._operations.clear()
        federation = fl.examples(rows, [4, 4], lambda p, x, key: jnp.sum(conv_relu(p, x), (1, 2, 3)), unravel)
        return choose_plan.step_operations(checked(fl.FedAvg(), federation, fl.SGD(0.1, batch_size=2), flat, 1))

    with_kernels = counted()
    monkeypatch.setenv("FEDLOOM_NATIVE", "0")
    assert with_kernels == counted() > 1e6
