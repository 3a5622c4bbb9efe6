"""Take it away: parameters, predictions and files of trained models, also of single clients."""

import json
import re

import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom.cli import main
from fedloom.experiments import run
from fedloom.models import named

ROUNDS = {"rounds": 3}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "study"
    fl.compare("digits", "fedavg,feddr", seeds=[0, 4], directory=path, rounds=3)
    return path


def result_of(directory, name, seed=0):
    return next(r for r in fl.experiments.read_study(directory).results if (r.name, r.experiment.seed) == (name, seed))


def logits(params, x):
    """Digits' model by hand."""
    for layer in params[:-1]:
        x = np.maximum(x @ np.asarray(layer["w"]).T + np.asarray(layer["b"]), 0)
    return x @ np.asarray(params[-1]["w"]).T + np.asarray(params[-1]["b"])


def test_predictions_are_those_of_the_parameters(directory):
    result, task = result_of(directory, "fedavg"), fl.load("digits")
    x = np.asarray(task.data.test[0])[:300]  # more than one piece
    by_hand = logits(
        result.params, np.asarray(task.task.prepare((jnp.asarray(x), jnp.zeros(300, int)), None)[0]).reshape(300, 64)
    )
    np.testing.assert_allclose(result.model.outputs(x), by_hand, atol=1e-5)
    np.testing.assert_array_equal(result.predict(x), by_hand.argmax(axis=1))
    np.testing.assert_allclose(result.model.probabilities(x).sum(axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(result.model.probabilities(x).argmax(axis=1), by_hand.argmax(axis=1))


def test_the_accuracy_of_the_predictions_is_the_logged_one(directory):
    result = result_of(directory, "feddr", seed=4)
    x, y = result.experiment.load().data.test
    assert np.mean(result.predict(x) == np.asarray(y)) == pytest.approx(result.rows[-1]["test accuracy"], abs=1e-12)


@pytest.mark.parametrize("suffix", ["safetensors", "npz", "pt"])
def test_a_file_gives_the_same_predictions(directory, tmp_path, suffix):
    if suffix == "pt":
        pytest.importorskip("torch", reason="PyTorch's format needs PyTorch")
    result, x = result_of(directory, "fedavg"), fl.load("digits").data.test[0]
    path = result.save(tmp_path / f"m.{suffix}")
    again = fl.load_model(path)
    np.testing.assert_array_equal(again.w, result.w)
    np.testing.assert_array_equal(again.predict(x), result.predict(x))
    assert again.about == {"fedloom": fl.__version__, "task": "digits", "method": "fedavg", "seed": 0, "round": 3}
    with pytest.raises(ValueError, match="already exists"):
        result.save(path)


def test_other_programs_read_the_arrays(directory, tmp_path):
    from safetensors.numpy import load_file

    result = result_of(directory, "fedavg")
    arrays = load_file(result.save(tmp_path / "m.safetensors"))
    for i, layer in enumerate(result.params):
        for name, value in layer.items():
            np.testing.assert_array_equal(arrays[f"{i}.{name}"], value)
    with np.load(result.save(tmp_path / "m.npz")) as npz:
        np.testing.assert_array_equal(npz["0.w"], result.params[0]["w"])
        assert json.loads(npz["fedloom"].tobytes())["model"] == "mlp-64-32-10"


def test_a_result_in_memory_and_one_read_from_disk_are_the_same_model(tmp_path):
    e = fl.experiment("digits", "fedsplit", rounds=2)
    here, there = run(e), run(e, tmp_path / "run")
    np.testing.assert_array_equal(here.w, there.w)
    again = fl.experiments.read(tmp_path / "run")
    for k in sorted(here.memories)[:2]:
        one, other = here.client_model(k), again.client_model(k)
        np.testing.assert_array_equal(one.w, other.w)
        assert not np.array_equal(one.w, here.w)
        assert other.about["client"] == k


@pytest.mark.parametrize("method", ["feddr", "fedpd", "fedsplit"])
def test_a_clients_own_model_is_what_its_method_keeps(method):
    """The engine's own record is the oracle."""
    e = fl.experiment("digits", method, rounds=2)
    task = e.load()
    *_, record = fl.simulate(e.algorithm, task.federation, e.solver, task.w, 2, cohort=e.cohort, seed=0, chunk=2)
    result = run(e)
    taken = sorted(record.clients)
    for k in taken[:2]:
        np.testing.assert_allclose(result.client_model(k).w, e.algorithm.own_model(record.clients[k]), atol=1e-6)
    if missing := set(range(task.federation.clients)) - set(taken):
        with pytest.raises(ValueError, match="has not taken part"):
            result.client_model(min(missing))


def test_clients_have_names(tmp_path):
    x, y, owner = np.eye(6, 3), np.arange(6) % 2, np.array(["b", "a", "b", "a", "b", "a"])
    task = fl.Task("named", fl.by_client(x, y, owner, test=0), fl.models.logistic(3, 2))
    result = run(fl.experiment(task, "feddr", rounds=1))
    np.testing.assert_array_equal(result.client_model("b").w, result.client_model(1).w)
    with pytest.raises(ValueError, match=r"There is no client 'c'.*Known: a, b"):
        result.client_model("c")


REFUSED = {
    "a method without": (lambda: run(fl.experiment("digits", "fedavg", **ROUNDS)).client_model(0), "FedSplit do"),
    "a number too large": (
        lambda: run(fl.experiment("digits", "feddr", **ROUNDS)).client_model(100),
        "numbered 0 to 99",
    ),
    "no examples": (lambda: run(fl.experiment("quadratics", "fedavg", **ROUNDS)).predict([0]), "a function of w"),
    "no row": (lambda: run(fl.experiment("digits", "fedavg", **ROUNDS)).predict(np.zeros((0, 64))), "no row"),
    "a wrong shape": (
        lambda: run(fl.experiment("digits", "fedavg", **ROUNDS)).predict(np.zeros((3, 5))),
        r"does not take inputs of shape \(3, 5\)",
    ),
    "a wrong ending": (lambda: run(fl.experiment("digits", "fedavg", **ROUNDS)).save("m.pkl"), "must end with"),
    "no folder": (lambda: run(fl.experiment("digits", "fedavg", **ROUNDS)).save("a/m.npz"), "there is no folder"),
    "no such model": (lambda: named("mine"), "no model 'mine'"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_is_refused(what):
    call, words = REFUSED[what]
    with pytest.raises(ValueError, match=words):
        call()


def test_a_run_that_diverged_has_no_model():
    result = run(fl.experiment("digits", "fedavg", rounds=3, **{"solver.lr": 1e9}))
    with pytest.raises(ValueError, match="fedavg, seed 0, has no model: "):
        result.params  # noqa: B018


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "cannot be read as a model"), (b"PK\x03\x04junk", "cannot be read as a model")],
)
def test_a_damaged_file_is_a_sentence(tmp_path, content, words):
    for suffix in ("safetensors", "npz"):
        (tmp_path / f"m.{suffix}").write_bytes(content)
        with pytest.raises(ValueError, match=words):
            fl.load_model(tmp_path / f"m.{suffix}")


def test_a_file_of_others_is_not_a_model(tmp_path):
    np.savez(tmp_path / "m.npz", a=np.zeros(3))
    with pytest.raises(ValueError, match="was not written by FedLoom"):
        fl.load_model(tmp_path / "m.npz")


def test_a_model_of_ones_own_is_exported_but_not_rebuilt(tmp_path):
    own = fl.models.Model("own", lambda key: {"a": jnp.zeros((3, 2))}, lambda p, x, key: x @ p["a"])
    data = fl.by_client(np.eye(6, 3), np.arange(6) % 2, np.arange(6) // 3, test=0)
    result = run(fl.experiment(fl.Task("mine", data, own), "fedavg", rounds=1))
    path = result.save(tmp_path / "m.npz")
    with np.load(path) as npz:
        np.testing.assert_array_equal(npz["a"], result.params["a"])
    with pytest.raises(ValueError, match=r"no model 'own'.*Read its arrays"):
        fl.load_model(path)


def test_flax_and_equinox_users_get_their_own_back():
    import equinox as eqx
    from flax import linen, nnx

    x = np.random.default_rng(0).normal(size=(40, 3))
    data = fl.by_client(x, (x[:, 0] > 0).astype(int), np.arange(40) // 10, test=0)
    models = {
        "linen": fl.models.from_linen(linen.Dense(2, param_dtype=float), x[:1]),
        "nnx": fl.models.from_nnx(lambda rngs: nnx.Linear(3, 2, rngs=rngs, param_dtype=float)),
        "equinox": fl.models.from_equinox(lambda key: eqx.nn.Linear(3, 2, key=key)),
    }
    found = {name: run(fl.experiment(fl.Task(name, data, m), "fedavg", rounds=2)) for name, m in models.items()}
    want = {name: r.model.outputs(x) for name, r in found.items()}
    np.testing.assert_allclose(linen.Dense(2).apply({"params": found["linen"].params}, x), want["linen"], atol=1e-12)
    np.testing.assert_allclose(found["nnx"].params(jnp.asarray(x)), want["nnx"], atol=1e-12)
    layer = found["equinox"].params
    np.testing.assert_allclose(x @ np.asarray(layer.weight).T + np.asarray(layer.bias), want["equinox"], atol=1e-12)
    assert sorted(found["equinox"].model.arrays()) == ["bias", "weight"]


# The commands.


def say(capsys, *arguments):
    code = main(list(arguments))
    said = capsys.readouterr()
    return code, said.out, said.err


def test_export_and_predict(directory, tmp_path, capsys):
    code, out, _ = say(capsys, "export", str(directory), "--algorithm", "feddr", "--seed", "4", "--out", "m.npz")
    assert (code, out) == (0, "m.npz: mlp-64-32-10 of feddr, seed 4, 2,410 parameters\n")
    result, x = result_of(directory, "feddr", 4), np.asarray(fl.load("digits").data.test[0])[:7]
    np.savez("new.npz", x=x)
    for source in ([str(directory), "--algorithm", "feddr", "--seed", "4"], ["m.npz"]):
        (tmp_path / "new-predictions.csv").unlink(missing_ok=True)
        code, out, _ = say(capsys, "predict", source[0], "new.npz", *source[1:])
        assert (code, out) == (0, "new-predictions.csv: predictions for 7 rows\n")
        lines = (tmp_path / "new-predictions.csv").read_text().splitlines()
        assert lines == ["prediction", *map(str, result.predict(x).tolist())]


def has_model(result, k):
    try:
        return result.client_model(k) is not None
    except ValueError:
        return False


def test_a_clients_model_is_exported(directory, capsys):
    result = result_of(directory, "feddr")
    taken = next(k for k in range(100) if has_model(result, k))
    arguments = ("--algorithm", "feddr", "--client", str(taken), "--out", "c.safetensors")
    assert say(capsys, "export", str(directory), *arguments)[0] == 0
    np.testing.assert_array_equal(fl.load_model("c.safetensors").w, result.client_model(taken).w)


def test_the_usual_place_is_the_runs_directory(directory, capsys):
    place = result_of(directory, "fedavg").directory
    _, out, _ = say(capsys, "export", str(place))
    assert out.startswith(f"{place / 'model.safetensors'}: ")
    code, _, err = say(capsys, "export", str(place))
    assert code == 2
    assert "already exists" in err


WRONG = [
    ("export {d}", "has runs of fedavg, feddr; say which, for example --algorithm fedavg"),
    ("export {d} --algorithm fedavgg", "has no run of 'fedavgg'. Did you mean 'fedavg'"),
    ("export {d} --algorithm fedavg --seed 3", "no run with seed 3; there are 0, 4"),
    ("export {d} --algorithm fedavg --format npz --out m.pt", "has a name with .npz|ends with .npz"),
    ("export {d} --algorithm fedavg --client 0", "FedSplit do"),
    ("export nowhere", "There is no directory nowhere"),
    ("predict {d} gone.npz --algorithm fedavg", "give an .npz file"),
    ("predict gone.npz gone.npz", "There is no directory|There is no file"),
]


@pytest.mark.parametrize(("line", "words"), WRONG)
def test_wrong_arguments_are_sentences(directory, capsys, line, words):
    code, _, err = say(capsys, *line.format(d=directory).split())
    assert code == 2
    assert re.search(words, err)
    assert err.count("\n") == 1
