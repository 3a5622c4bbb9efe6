"""What clients do with their own data: nothing but sums leaves them, and all is as if the data were in one place."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedloom as fl
from fedloom.client import LocalClient
from fedloom.data.federated_data import FederatedData
from fedloom.data.split import Split
from fedloom.federation.evaluating import check_metrics, check_parts, metrics_of, sums_of_model
from fedloom.federation.objectives import Told, seen_by, table_task, told
from fedloom.federation.one_client import client_of, together
from fedloom.federation.own_data import OwnData, own_rows, own_seed
from fedloom.federation.own_table import own_table
from fedloom.federation.schemas import merged, schema_of
from fedloom.federation.statistics import added, fitted, mean_of, squares_of, sums_of
from fedloom.tables import Category, Classes, Number, Preparation, Quantity
from fedloom.tasks.evaluated import Evaluation
from tests.test_sources import real

pd = pytest.importorskip("pandas", reason="needs pandas")

WARDS = ("east", "north", "south", "west")
RNG = np.random.default_rng(0)


def experiment(**changes):
    given = dict(task="table.csv", cohort=fl.cohorts.uniform(2), rounds=3, label="ill") | changes
    return fl.Experiment(algorithm=fl.FedAvg(), solver=fl.SGD(0.1), **given)


def patients(n=60):
    """A table with everything; much of it is at one client only."""
    ward = RNG.choice(WARDS, n, p=[0.5, 0.2, 0.2, 0.1])
    lab, drug = RNG.normal(-3, 1e-3, n), RNG.choice(["a", "b", "c"], n).astype(object)
    lab[(ward == "north") & (RNG.random(n) < 0.6)] = np.nan  # missing at one client only
    lab[ward == "west"] = np.nan  # no value at all
    drug[ward == "south"] = "b"
    drug[np.flatnonzero(ward == "south")[0]] = "rare"  # at one client only, and in the rows that train
    drug[(ward == "north") & (RNG.random(n) < 0.5)] = None
    drug[ward == "east"] = None
    fold = RNG.choice(["train", "test", "validation"], n, p=[0.7, 0.2, 0.1])
    fold[[np.flatnonzero(ward == w)[0] for w in WARDS]] = "train"
    return pd.DataFrame(
        {
            "year": RNG.integers(1990, 2020, n) + 10_000_000,
            "lab": lab,
            "flat": 0.1,
            "smoker": RNG.random(n) < 0.3,
            "drug": drug,
            "ill": np.where(ward == "north", "no", RNG.choice(["no", "yes"], n)),  # constant at one client
            "grade": np.where(ward == "north", 7, RNG.integers(0, 5, n)),
            "cost": RNG.normal(5000, 900, n),
            "days": np.arange(n) * 3 + 1000,
            "died": RNG.random(n) < 0.5,
            "ward": ward,
            "fold": fold,
        }
    )


FRAME = patients()
LABELS = ("ill", "grade", "cost", "days", "died")


def sent(value):
    """What arrives, if JSON is what travels."""
    return json.loads(json.dumps(value, allow_nan=False))


def tables(frame, **roles):
    """The clients of a frame, each with its own rows."""
    parts = {
        ward: frame[frame.ward == ward].drop(columns="ward").reset_index(drop=True) for ward in sorted(set(frame.ward))
    }
    given = experiment(**roles)
    return {w: OwnData(w, table=own_table(part, given, own_seed(0, k))) for k, (w, part) in enumerate(parts.items())}


def prepared(clients):
    """The preparation that clients and server make together."""
    unfitted = merged({name: sent(schema_of(own)) for name, own in clients.items()})
    unfitted = Preparation.from_plain(sent(unfitted.to_plain()))
    total = added(unfitted, {name: sent(sums_of(own, unfitted)) for name, own in clients.items()})
    mean = sent(mean_of(unfitted, sent(total)))
    return fitted(unfitted, total, {name: sent(squares_of(own, unfitted, mean)) for name, own in clients.items()})


def assert_same(found, wanted):
    """Two preparations: statistics to 1e-12, all else exactly."""
    statistics = dict(mean=0.0, scale=0.0)
    for a, b in zip(found.columns, wanted.columns, strict=True):
        if isinstance(a, Number):
            np.testing.assert_allclose([a.mean, a.scale], [b.mean, b.scale], rtol=1e-12)
            a, b = (dataclasses.replace(c, distinct=False, **statistics) for c in (a, b))
        assert a == b
    a, b = found.label, wanted.label
    if isinstance(a, Quantity):
        np.testing.assert_allclose([a.mean, a.deviation], [b.mean, b.deviation], rtol=1e-12)
        a, b = Quantity(a.name), Quantity(b.name)
    assert a == b


# The preparation of tables.


@pytest.mark.parametrize("label", LABELS)
def test_preparation_and_rows_are_those_of_the_whole_table(label):
    roles = dict(label=label, split_column="fold", leave_out=tuple(name for name in LABELS if name != label))
    clients, whole = tables(FRAME, **roles), fl.from_frame(FRAME, client="ward", **roles).load().data
    made = prepared(clients)
    assert_same(made, whole.preparation)
    for k, own in enumerate(clients.values()):
        alone, wanted = own.prepared(made).data, client_of(whole, k)
        assert (own.size, own.test_size) == (alone.split.sizes[0], 0 if alone.test is None else len(alone.test[1]))
        for a, b in zip(
            jax.tree.leaves((alone.train, alone.test)), jax.tree.leaves((wanted.train, wanted.test)), strict=True
        ):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(alone.split.order, wanted.split.order)


def test_kinds_of_labels_need_all_clients():
    kinds = {
        label: merged({w: schema_of(own) for w, own in tables(FRAME, label=label).items()}).label for label in LABELS
    }
    assert kinds["ill"] == Classes("ill", ("no", "yes"))
    assert kinds["grade"] == Classes("grade", (0, 1, 2, 3, 4, 7))
    assert kinds["died"] == Classes("died", (False, True))
    assert isinstance(kinds["cost"], Quantity)
    assert isinstance(kinds["days"], Quantity)
    few = {w: schema_of(own)["label"]["values"] for w, own in tables(FRAME, label="days").items()}
    assert few["west"] is not None  # alone, it would have classes
    assert len(set().union(*(v or range(21) for v in few.values()))) > 20


def test_twenty_integers_over_all_clients_are_classes_and_twenty_one_are_a_number():
    def label(n):
        frame = pd.DataFrame({"x": np.arange(n) / 7, "ill": np.arange(n), "ward": np.arange(n) % 3})
        clients = tables(frame)
        whole = fl.from_frame(frame, label="ill", client="ward", model="linear").load().data.preparation.label
        found = merged({str(w): schema_of(own) for w, own in clients.items()}).label
        assert found.outputs == whole.outputs
        return found

    assert label(20) == Classes("ill", tuple(range(20)))
    assert label(21) == Quantity("ill")


def test_booleans_here_and_integers_there_are_integers():
    frames = {"a": {"x": [1.0, 2.0], "ill": [True, False]}, "b": {"x": [1.0, 2.0], "ill": [1, 3]}}
    clients = {w: OwnData(w, table=own_table(frame, experiment(), 0)) for w, frame in frames.items()}
    assert merged({w: schema_of(own) for w, own in clients.items()}).label == Classes("ill", (0, 1, 3))


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(-1e3, 1e3), st.sampled_from(["p", "q", "r", None]), st.sampled_from("ABC"), st.booleans()),
        min_size=6,
        max_size=30,
    )
)
def test_statistics_do_not_depend_on_who_owns_the_rows(rows):
    frame = pd.DataFrame(rows, columns=["x", "drug", "ward", "ill"])
    frame["drug"] = frame.drug.astype(object).where(frame.drug.notna(), None)
    frame["fold"] = "train"
    if frame.ill.nunique() < 2 or frame.drug.isna().all():
        return
    made = prepared(tables(frame, split_column="fold"))
    wanted = fl.from_frame(frame, label="ill", client="ward", split_column="fold").load().data.preparation
    assert_same(made, wanted)


def test_hospitals_prepare_their_tables_together(tmp_path):
    from fedloom.data.sources.heart import COLUMNS, HOSPITALS

    folder, names = real("heart_disease") / "heart_disease", [*list(COLUMNS)[:-1], "ill"]
    parts = {}
    for hospital in HOSPITALS:
        lines = (folder / f"processed.{hospital}.data").read_text().split()
        (tmp_path / f"{hospital}.csv").write_text("\n".join([",".join(names), *lines]) + "\n")
        parts[hospital] = pd.read_csv(tmp_path / f"{hospital}.csv", na_values="?")
    given = experiment()
    clients = {h: own_rows(str(tmp_path / f"{h}.csv"), given, k, h, seed=3) for k, h in enumerate(HOSPITALS)}
    for hospital, own in clients.items():
        parts[hospital]["fold"] = np.where(np.isin(np.arange(len(parts[hospital])), own.table.test), "test", "train")
    frame = pd.concat([part.assign(hospital=h) for h, part in parts.items()], ignore_index=True)
    whole = fl.from_frame(frame, label="ill", client="hospital", split_column="fold", model="linear").load()
    made = prepared(clients)
    assert_same(made, whole.data.preparation)
    assert made.label == Classes("ill", (0, 1, 2, 3, 4))  # Switzerland has few of the first
    owns = [own.prepared(made) for own in clients.values()]
    assert sum(own.size + own.test_size for own in owns) == 920
    task, w = table_task(made, "linear"), whole.w + 0.1
    sums = {k: sums_of_model(task, own, w) for k, own in enumerate(owns)}
    found = metrics_of(sums, whole.federation.weights)
    wanted = Evaluation(whole).of(w)
    assert found.keys() == {"train loss", "test loss", "test accuracy"}
    for name, value in found.items():
        assert abs(value - wanted[name]) <= 1e-12


# What does not fit together.


def two(here, there, **changes):
    frames = {"here": here, "there": there}
    clients = {w: OwnData(w, table=own_table(frame, experiment(**changes), 0)) for w, frame in frames.items()}
    return merged({w: sent(schema_of(own)) for w, own in clients.items()})


HERE = {"age": [1.0, 2.0, 3.0], "drug": ["a", "b", None], "ill": ["no", "no", "no"]}


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (
            {"age": ["x", "y", "z"], "ill": ["yes"] * 3},
            "Column 'age' has texts at client 'there', but numbers at client 'here'",
        ),
        ({"age": None}, "Column 'age' is in the table of client 'here', but not in that of client 'there'"),
        ({"more": [1, 2, 3]}, "Column 'more' is in the table of client 'there', but not in that of client 'here'"),
        ({"ill": [1, 2, 3]}, "The label 'ill' has texts at client 'here', but numbers at client 'there'"),
        ({}, "The label 'ill' is 'no' in every row of every client"),
        ({"age": [1.0, np.inf, 2.0]}, "Column 'age' has inf in row 1"),
        ({"ill": ["no", None, "yes"]}, "The label 'ill' has no value in row 1"),
    ],
)
def test_conflicts_name_client_and_column(there, words):
    changed = {name: values for name, values in (HERE | there).items() if values is not None}
    with pytest.raises(ValueError, match=words):
        two(HERE, changed)


def test_a_column_without_values_takes_the_kind_that_others_have():
    empty = HERE | {"age": [np.nan] * 3, "drug": [np.nan] * 3, "ill": ["yes"] * 3}
    number, text = two(HERE, empty).columns
    assert number == Number("age", marked=True)
    assert text == Category("drug", ("a", "b"), True, (False, False))
    with pytest.raises(ValueError, match="Column 'age' has no value at any client"):
        two(HERE | {"age": [np.nan] * 3}, empty)


def test_identifiers_do_not_leave_a_client():
    names = {"name": [f"patient {i}" for i in range(30)], "age": np.arange(30.0), "ill": ["no", "yes"] * 15}
    own = OwnData("here", table=own_table(names, experiment(), 0))
    with pytest.raises(ValueError, match="Column 'name' has 30 different texts in 30 rows, like an identifier"):
        schema_of(own)
    with pytest.raises(ValueError, match="leave_out: there is no column 'Name'"):  # or it would leave
        own_table(names, experiment(leave_out="Name"), 0)
    # Few at each client, but too many in all.
    parts = [{"town": [f"{c}{i % 40}" for i in range(80)], "ill": ["no", "yes"] * 40} for c in "abc"]
    schemas = {
        str(k): schema_of(OwnData(str(k), table=own_table(part, experiment(), 0))) for k, part in enumerate(parts)
    }
    with pytest.raises(ValueError, match="Column 'town' has 120 different texts in 240 rows"):
        merged(schemas)


SCHEMA = {
    "rows": 3,
    "columns": [{"name": "x", "kind": "number", "missing": False, "distinct": False}],
    "label": {"name": "y", "kind": "integer", "values": [0, 1]},
}


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        {},
        SCHEMA | {"rows": "3"},
        SCHEMA | {"columns": []},
        SCHEMA | {"columns": [{"name": "x"}]},
        SCHEMA | {"columns": SCHEMA["columns"] * 2},
        SCHEMA | {"columns": [{"name": "x", "kind": "text", "missing": False, "categories": [1], "known": 3}]},
        SCHEMA | {"columns": [{"name": "x", "kind": "image", "missing": False}]},
        SCHEMA | {"label": {"name": "y", "kind": "integer", "values": [0.5]}},
        SCHEMA | {"label": {"name": "y", "kind": [], "values": []}},
    ],
)
def test_what_is_no_schema_is_refused(wrong):
    merged({"here": SCHEMA, "there": SCHEMA})
    with pytest.raises(ValueError, match="Client 'there'"):
        merged({"here": SCHEMA, "there": wrong})


def test_what_are_no_sums_is_refused():
    clients = tables(FRAME, leave_out=("grade", "cost", "days", "died", "fold"))
    unfitted = merged({w: schema_of(own) for w, own in clients.items()})
    sums = {w: sums_of(own, unfitted) for w, own in clients.items()}
    good = sums["south"]
    for field, values in (
        ("counts", good["counts"][1:]),
        ("counts", [-1, *good["counts"][1:]]),
        ("totals", [float("nan"), *good["totals"][1:]]),
        ("totals", ["1", *good["totals"][1:]]),
        ("categories", []),
        ("categories", [good["categories"][0][1:]]),
        ("more", 1),
    ):
        with pytest.raises(ValueError, match="Client 'south'"):
            added(unfitted, sums | {"south": good | {field: values}})
    total = added(unfitted, sums)
    with pytest.raises(ValueError, match="Client 'south': squares"):
        fitted(unfitted, total, {"south": [-1.0] * len(good["counts"])})
    large = OwnData("large", table=own_table({"x": [1e300, 3e300, -1e300], "ill": [0, 1, 1]}, experiment(), 0))
    unfitted = merged({"large": schema_of(large)})
    with pytest.raises(ValueError, match="Client 'large': the numbers of column 'x' are too large"):
        squares_of(large, unfitted, [0.0])


def test_a_number_that_never_changes_cannot_be_learnt():
    own = OwnData("here", table=own_table({"x": [1.0, 2.0, 4.0], "ill": [0.5] * 3}, experiment(), 0))
    with pytest.raises(ValueError, match="The label 'ill' is the same in all training rows"):
        prepared({"here": own})


# What a client has.


def test_held_out_rows_depend_on_seed_and_number_alone():
    def test_rows(k, seed, n=50):
        frame = {"x": np.arange(n), "ill": np.arange(n) % 2}
        return own_table(frame, experiment(), own_seed(seed, k)).test

    np.testing.assert_array_equal(test_rows(1, 0), test_rows(1, 0))
    assert len(test_rows(1, 0)) == 10
    different = [tuple(test_rows(k, seed)) for k in range(3) for seed in range(3)]
    assert len(set(different)) == 9
    alone = own_table({"x": [1.0], "ill": [1]}, experiment(), 0)
    assert (len(alone.train), len(alone.test)) == (1, 0)
    divided = own_table({"x": np.arange(50), "ill": np.arange(50) % 2}, experiment(validation=0.25), own_seed(0, 1))
    np.testing.assert_array_equal(divided.test, test_rows(1, 0))
    assert len(divided.validation) == 10
    assert sorted([*divided.train, *divided.validation, *divided.test]) == list(range(50))
    # A share is held out instead of the rows that were held out before.
    fold = np.repeat(["train", "validation", "test"], [20, 20, 10])
    again = own_table(
        {"x": np.arange(50), "ill": np.arange(50) % 2, "fold": fold},
        experiment(validation=0.25, split_column="fold"),
        own_seed(0, 1),
    )
    assert (len(again.train), len(again.validation)) == (30, 10)
    assert sorted([*again.train, *again.validation]) == list(range(40))


OWN = """
import numpy as np
import fedloom as fl

x, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 3

def pair(): return x, y
def named(name): return x + len(name), y
def four(): return x, y, x[:5], y[:5]
def data(): return fl.by_client(x, y, ["me"] * 20, test=0.25)
def objective(): return fl.quadratics(clients=3, dimension=4)
def one(): return fl.quadratics(clients=1, dimension=4)
def frame(): return {"x": x[:, 0], "ill": y}
def two(): return fl.by_client(x, y, np.arange(20) % 2)
def three(): return x, y, x
def nothing(): pass
def shapes(): return x, y, x[:, 0], y
def infinite(): return x / 0 , y
def needs(a, b): return x, y
"""


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return lambda name, k=1, **changes: own_rows(f"{path}:{name}", experiment(**changes), k, "me", seed=0)


def test_a_function_of_ones_own(own):
    found = {name: own(name) for name in ("pair", "named", "four", "data", "objective", "one", "frame")}
    sizes = {name: (f.size, f.test_size) for name, f in found.items()}
    assert sizes == {
        "pair": (18, 2),
        "named": (18, 2),
        "four": (20, 5),
        "data": (15, 5),
        "objective": (1, 0),
        "one": (1, 0),
        "frame": (16, 4),
    }
    np.testing.assert_array_equal(found["named"].data.train[0], found["pair"].data.train[0] + 2)
    simulated = fl.by_client(np.arange(40.0).reshape(20, 2), np.arange(20) % 3, ["me"] * 20, seed=own_seed(0, 1))
    np.testing.assert_array_equal(found["pair"].data.split.order, simulated.split.order)
    assert [f.place for f in (found["objective"], found["one"])] == [1, 0]
    held = own("pair", validation=0.25).data
    assert len(held.validation_split.order) in (4, 5)
    assert own("four", validation=1e-9).data.validation_split is None  # too few to spare one


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("two", "must return the rows of one client, but returns 2"),
        ("three", r"must return \(x, y\), \(x, y, test_x, test_y\).*but returns a tuple of 3"),
        ("nothing", "but returns None"),
        ("shapes", "different shapes"),
        ("infinite", "x: row 0 has"),
        ("needs", "must be a function without arguments, or of the client's name alone"),
        ("x", "not a function, without arguments or of the client's name"),
        ("missing", "has no data 'missing'"),
    ],
)
@pytest.mark.filterwarnings("ignore:(divide|invalid)")
def test_wrong_functions_are_told_what_is_wanted(own, name, words):
    with pytest.raises(ValueError, match=words):
        own(name)


def test_wrong_data_are_refused(own, tmp_path):
    with pytest.raises(ValueError, match="returns 3 clients, and none with the number 3"):
        own("objective", k=3)
    with pytest.raises(ValueError, match=r"neither FILE.py:NAME, nor a table"):
        own_rows("rows", experiment(), 0, "me", 0)
    with pytest.raises(ValueError, match="There is no file"):
        own_rows(str(tmp_path / "rows.csv"), experiment(), 0, "me", 0)
    (tmp_path / "rows.csv").write_text("x,ill,ward\n1,0,a\n2,1,b\n")
    with pytest.raises(ValueError, match=r"rows.csv: label: there is no column 'sick'"):
        own_rows(str(tmp_path / "rows.csv"), experiment(label="sick"), 0, "me", 0)
    with pytest.raises(ValueError, match=r"rows.csv: client: the column 'ward' names 2 clients"):
        own_rows(str(tmp_path / "rows.csv"), experiment(client="ward"), 0, "me", 0)
    with pytest.raises(ValueError, match=r"label: name the column"):
        own_rows(str(tmp_path / "rows.csv"), experiment(label=None), 0, "me", 0)
    (tmp_path / "rows.csv").write_text("x,ill,ward\n1,0,a\n2,1,a\n")
    found = own_rows(str(tmp_path / "rows.csv"), experiment(client="ward"), 0, "me", 0)
    assert list(found.table.table.columns) == ["x", "ill"]  # whose rows they are is no feature
    with pytest.raises(ValueError, match="must be prepared first"):
        seen_by(found, TASK, Told(0, 1, 1.0, 5, 5))
    with pytest.raises(ValueError, match="has no table"):
        schema_of(OwnData("me", federation=fl.quadratics(clients=1)))


# Objectives: what a client computes alone has the bits that it has among all.

SIZES = np.array([5, 23, 1, 11, 300])
X = RNG.normal(size=(SIZES.sum() + 40, 6))
Y = RNG.integers(0, 3, len(X))
ORDER = RNG.permutation(len(X))[: SIZES.sum()]


def data():
    """Ragged clients, rows here and there, some test rows that nobody owns."""
    tests = Split(np.array([8, 3, 5, 1, 2]), np.array([2, 0, 1, 0, 2]))
    return FederatedData((X, Y), Split(ORDER, SIZES), (X[:12] + 1, Y[:12]), tests, 3)


TASK = fl.Task("ragged", data(), fl.models.mlp(6, 5, 3))
LINEAR = fl.Task("linear", data(), fl.models.logistic(6, 3), weights="uniform")


def alone(task):
    """Each client's own data and the federation that it sees; the numbers have travelled."""
    owns = [OwnData(str(k), data=client_of(task.data, k)) for k in range(len(SIZES))]
    places = [Told(*sent(place)) for place in told([own.size for own in owns], task.weights)]
    return owns, [seen_by(own, task, place) for own, place in zip(owns, places, strict=True)]


SOLVERS = {
    "sgd": (TASK, fl.SGD(0.1, batch_size=4, epochs=2)),
    "gd": (TASK, fl.GD(0.1, steps=5)),
    "exact": (LINEAR, fl.Exact()),
}


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_client_alone_has_the_bits_that_it_has_among_all(solver):
    task, solver = SOLVERS[solver]
    loaded = task.load()
    _, federations = alone(task)

    @jax.jit
    def of_client(federation, k, w):
        client = LocalClient(federation.objective(k), solver, jax.random.key(k), jax.random.key(1), 0, 1.0)
        solved = client.solve(fl.Problem(start=w, linear=0.1 * w, anchor=w + 1, mu=0.3))
        return client.loss(w), client.grad(w), solved.w, federation.relative_weight(k), client.meter.gradients

    for k, federation in enumerate(federations):
        wanted, found = (of_client(f, k, loaded.w) for f in (loaded.federation, federation))
        for a, b in zip(found, wanted, strict=True):
            assert np.isfinite(b).all()
            np.testing.assert_array_equal(a, b)


def test_objectives_of_ones_own_keep_their_places():
    whole = fl.quadratics(clients=3, dimension=2, seed=1)
    task, w = fl.Task("own", whole), jnp.ones(2)
    p = np.asarray(whole.weights)
    own = OwnData("b", federation=whole, place=1)
    assert seen_by(own, task, Told(1, 3, float(p[1]), 1, 1)) is whole
    other = seen_by(own, task, Told(4, 6, 0.25, 1, 1))  # another number among more clients
    np.testing.assert_array_equal(other.objective(4).grad(w), whole.objective(1).grad(w))
    assert (other.clients, float(other.relative_weight(4))) == (6, 1.5)
    assert sums_of_model(task, own, w) == {"train loss": [float(whole.objective(1).loss(w)), 1.0]}
    with pytest.raises(ValueError, match="cannot have the number 3 of 3"):
        seen_by(own, task, Told(3, 3, 0.5, 1, 1))


def test_a_client_with_more_examples_than_anybody_is_refused():
    own = OwnData("a", data=client_of(data(), 1))
    with pytest.raises(ValueError, match="Client 'a' has 23 examples, but is told that nobody has over 20"):
        seen_by(own, TASK, Told(0, 2, 0.5, 20, 20))


def test_a_client_of_a_task():
    given = experiment(label=None, task=TASK, validation=0.3)
    whole = given.load().data
    for k in range(whole.clients):
        found, wanted = own_rows("task", given, k, str(k), seed=0).data, client_of(whole, k)
        for a, b in zip(
            jax.tree.leaves((found.train, found.test)), jax.tree.leaves((wanted.train, wanted.test)), strict=True
        ):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(found.train[0][found.split.order], whole.train[0][whole.split.rows(k)])
    with pytest.raises(ValueError, match="task 'ragged' has 5 clients, and none with the number 5"):
        own_rows("task", given, 5, "5", seed=0)
    quadratics = fl.Task("quadratics", fl.quadratics(clients=3, dimension=2))
    own = own_rows("task", experiment(label=None, task=quadratics), 2, "c", seed=0)
    assert (own.place, own.size, own.capacity) == (2, 1, 1)


def test_brought_together_clients_are_the_data_that_they_came_from():
    whole = data()
    again = together({str(k): client_of(whole, k) for k in range(whole.clients)})
    assert again.split.names.tolist() == list("01234")
    for k in range(whole.clients):
        for a, b in zip(again.train, whole.train, strict=True):
            np.testing.assert_array_equal(a[again.split.rows(k)], b[whole.split.rows(k)])
    key = np.lexsort(np.asarray(whole.test[0]).T), np.lexsort(np.asarray(again.test[0]).T)
    np.testing.assert_array_equal(whole.test[0][key[0]], again.test[0][key[1]])  # all test rows, each once


# Evaluation.


@pytest.mark.parametrize("task", [TASK, LINEAR], ids=lambda t: t.name)
def test_metrics_are_those_of_the_simulation(task):
    loaded = task.load()
    w = loaded.w + 0.3
    owns, _ = alone(task)
    parts = ["train", "train accuracy", "test"]
    sums = {k: sent(sums_of_model(task, own, w, parts)) for k, own in enumerate(owns)}
    found, wanted = metrics_of(sums, loaded.federation.weights), Evaluation(loaded, parts).of(w)
    assert found.keys() == {"train loss", "train accuracy", "test loss", "test accuracy"}
    for name, value in found.items():
        assert abs(value - wanted[name]) <= 1e-12
    assert metrics_of({k: sums_of_model(task, own, w, ["test accuracy"]) for k, own in enumerate(owns)}, []) == {
        "test accuracy": found["test accuracy"]
    }


def test_a_number_is_evaluated_in_its_own_units():
    roles = dict(label="cost", split_column="fold", leave_out=tuple(name for name in LABELS if name != "cost"))
    clients = tables(FRAME, **roles)
    loaded = fl.from_frame(FRAME, client="ward", model="linear", **roles).load()
    task = table_task(prepared(clients), "linear")
    owns = [own.prepared(loaded.data.preparation) for own in clients.values()]
    sums = {k: sums_of_model(task, own, loaded.w, ["train", "validation", "test"]) for k, own in enumerate(owns)}
    found, wanted = metrics_of(sums, loaded.federation.weights), Evaluation(loaded).of(loaded.w)
    assert found.keys() == {"train loss", "validation loss", "validation mse", "test loss", "test mse"}
    for name, value in found.items():
        assert abs(value - wanted[name]) <= 1e-12 * abs(value)


def test_those_who_answer_are_averaged():
    p = np.array([0.5, 0.3, 0.2])
    sums = {0: {"train loss": [6.0, 3.0], "test loss": [1.0, 4.0]}, 2: {"train loss": [5.0, 1.0]}}
    found = metrics_of(sums, p)
    assert found["train loss"] == (0.5 * 2 + 0.2 * 5) / 0.7
    assert found["test loss"] == 0.25
    assert np.isnan(metrics_of({1: {"test accuracy": [0.0, 0.0]}}, p)["test accuracy"])


def test_only_sums_leave_a_client():
    check_metrics(TASK)
    with pytest.raises(
        ValueError, match="metrics: 'spread' is a function of all examples together, but in a federation"
    ):
        check_metrics(dataclasses.replace(TASK, metrics=(fl.metrics.Metric.of_all(lambda y, outputs: 1.0, "spread"),)))
    check_parts(TASK, ["train", "test accuracy"])
    with pytest.raises(ValueError, match="evaluate: a federation cannot evaluate 'test accurac'"):
        check_parts(TASK, ["test accurac"])
