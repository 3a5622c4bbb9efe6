"""Modules of PyTorch as models: outputs, derivatives, constants, dropout by key, state_dicts, and what is refused."""

import subprocess
import sys
import threading
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom.models import from_torch
from tests.federations import bits, last
from tests.torch_twins import DATA, NET, X, needs_torchax, nn, torch

calls = pytest.importorskip("fedloom.pytorch.calls", reason="needs PyTorch")
KEYS = jax.random.split(jax.random.key(3), 2)


class Tied(nn.Module):
    """Two layers share their weights; a buffer is constant, and one layer is frozen."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.last, self.frozen = nn.Linear(4, 3), nn.Linear(4, 4)
        self.frozen.requires_grad_(False)
        self.register_buffer("scale", torch.arange(4.0))

    def forward(self, x):
        return self.last(self.frozen(torch.tanh(self.second(torch.tanh(self.first(x * self.scale))))))


class Words(nn.Module):
    """Integers and floats in."""

    def __init__(self):
        super().__init__()
        self.table, self.last = nn.Embedding(7, 5), nn.Linear(9, 3)

    def forward(self, words, x):
        return self.last(torch.cat([self.table(words).mean(1), x], dim=1))


class Keeping(nn.Module):
    """The input is changed in place, as careless code does."""

    def __init__(self):
        super().__init__()
        self.of = nn.Linear(4, 3)

    def forward(self, x):
        return self.of(x.mul_(2))


def seeded(make):
    torch.manual_seed(1)
    return make().double()


MODULES = {
    "mlp": (lambda: NET, X[:5]),
    "tied": (lambda: seeded(Tied), X[:5]),
    "words": (lambda: seeded(Words), (np.arange(15).reshape(5, 3).astype(np.uint8) % 7, X[:5])),
    "in place": (lambda: seeded(Keeping), X[:5]),
    "lstm": (
        lambda: seeded(lambda: nn.Sequential(nn.LSTM(2, 3, batch_first=True), First(), nn.Flatten(), nn.Linear(6, 3))),
        X[:5].reshape(5, 2, 2),
    ),
    "weight norm": (lambda: seeded(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))), X[:5]),
    "convolution": (
        lambda: seeded(lambda: nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(2, 3))),
        X[:5].reshape(5, 1, 2, 2),
    ),
}


class First(nn.Module):
    def forward(self, pair):
        return pair[0]


def inputs(x):
    return [torch.from_numpy(np.array(a)) if a.dtype.kind == "f" else torch.from_numpy(a).long() for a in x]


def their_outputs_and_gradient(module, x):
    """What PyTorch itself gives, and the gradient of half the sum of squares."""
    outputs = module(*inputs(x if isinstance(x, tuple) else (x,)))
    own = [p for p in module.parameters() if p.requires_grad]
    parts = torch.autograd.grad((outputs**2).sum() / 2, own)
    return outputs.detach().numpy(), np.concatenate([g.numpy().ravel() for g in parts])


@pytest.mark.parametrize("compiled", [False, True], ids=["calls", "compiled"])
@pytest.mark.parametrize("name", MODULES)
def test_outputs_and_derivatives_are_pytorchs(name, compiled):
    make, x = MODULES[name]
    if compiled:
        needs_torchax()
    module = make()
    model = from_torch(module, x, compile=compiled)
    outputs, gradient = their_outputs_and_gradient(module.eval(), x)
    w = model.flat()
    assert model.parameters == len(w) == len(gradient)
    held = jax.tree.map(jnp.asarray, x)

    @jax.jit
    def square(w, x):
        return jnp.sum(model.apply(model.unravel(w), x, None) ** 2) / 2

    np.testing.assert_allclose(model.apply(model.unravel(w), x, None), outputs, rtol=1e-12)
    np.testing.assert_allclose(jax.grad(square)(w, held), gradient, rtol=1e-9, atol=1e-12)
    two = jax.vmap(lambda v: model.apply(model.unravel(v), x, None))(jnp.stack([w, 2 * w]))
    np.testing.assert_allclose(two[0], outputs, rtol=1e-12)
    assert jax.tree.all(jax.tree.map(np.array_equal, held, x))  # what a module does to its inputs, it does to a copy


def test_how_a_module_is_computed_is_a_rule():
    needs_torchax()
    compiled = {name: from_torch(make(), x).how == "PyTorch compiled by torchax" for name, (make, x) in MODULES.items()}
    assert compiled == {name: name not in ("lstm", "convolution") for name in MODULES}
    assert from_torch(NET, X[:2]).packages == ("torch", "torchax")
    assert from_torch(NET, X[:2], compile=False).packages == ("torch",)


def test_torchax_is_imported_when_needed_and_changes_nothing_for_others():
    needs_torchax()
    program = """
import os, sys
import fedloom as fl
assert not {"torch", "torchax", "fedloom.pytorch.calls"} & set(sys.modules)
import numpy as np
import torch
assert fl.models.from_torch(torch.nn.Linear(4, 3), np.zeros((2, 4)), compile=False).how == "PyTorch by callbacks"
assert "torchax" not in sys.modules
assert fl.models.from_torch(torch.nn.Linear(4, 3), np.zeros((2, 4))).how == "PyTorch compiled by torchax"
assert os.environ["ENABLE_RUNTIME_UPTIME_TELEMETRY"] == "0"
assert torch.backends.mha.get_fastpath_enabled()
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_without_torch_or_torchax():
    """Each in a process where it cannot be found."""
    program = """
import importlib.util, sys
import fedloom as fl
import numpy as np
sys.modules["{hidden}"] = None
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "{hidden}" else found(name, *rest)
{then}
"""
    by_calls = (
        "import torch\n"
        "assert fl.models.from_torch(torch.nn.Linear(4, 3), np.zeros((2, 4))).how == 'PyTorch by callbacks'\n"
        "fl.models.from_torch(torch.nn.Linear(4, 3), np.zeros((2, 4)), compile=True)"
    )
    for hidden, then, words in (
        (
            "torch",
            "fl.models.from_torch(3, np.zeros((2, 4)))",
            "torch is not installed; run: pip install 'fedloom[torch]'",
        ),
        ("torch", "fl.metrics.from_torch(3)", "torch is not installed; run: pip install 'fedloom[torch]'"),
        ("torch", "fl.TorchLoop(lambda p: p).offers", "torch is not installed; run: pip install 'fedloom[torch]'"),
        ("torchax", by_calls, "ValueError: Linear is not compiled: torchax cannot be imported"),
    ):
        program_now = program.format(hidden=hidden, then=then)
        done = subprocess.run([sys.executable, "-c", program_now], capture_output=True, text=True)
        assert words in done.stderr.splitlines()[-1], done.stderr[-2000:]


def test_the_weights_of_the_module_are_the_initial_model_and_it_is_left_alone():
    module = seeded(Tied)
    before = {n: t.clone() for n, t in module.state_dict().items()}
    model = from_torch(module, X[:5], compile=False)
    assert bits(model.flat(0)) == bits(model.flat(7))
    task = fl.Task("t", DATA, model).load()
    last(fl.simulate, fl.FedAvg(), task.federation, fl.SGD(0.1), task.w, 2)
    assert all(torch.equal(before[n], t) for n, t in module.state_dict().items())
    assert module.training
    with torch.no_grad():
        module.last.weight.zero_()  # the model has its own copy
    assert float(jnp.abs(model.flat(0) - task.w).max()) == 0


@pytest.mark.parametrize("compiled", [False, True], ids=["calls", "compiled"])
def test_a_function_makes_initial_weights_from_the_seed(compiled):
    if compiled:
        needs_torchax()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    model = from_torch(lambda: nn.Linear(4, 3).double(), X[:2], compile=compiled)
    w = [model.flat(seed) for seed in (0, 1, 0)]
    assert torch.equal(torch.get_rng_state(), before)
    assert bits(w[0]) == bits(w[2]) != bits(w[1])
    assert np.abs(w[0]).max() <= 0.5  # uniform within 1 / sqrt(fan in), as PyTorch has it
    state = model.own(model.unravel(w[1]))
    np.testing.assert_array_equal(np.concatenate([state["weight"].numpy().ravel(), state["bias"].numpy()]), w[1])


@pytest.mark.parametrize("name", MODULES)
def test_a_state_dict_goes_in_and_comes_out(name):
    make, x = MODULES[name]
    module = make()
    model = from_torch(module, x, name="mine")
    assert model.name == "mine"
    w = model.flat() + 0.1 * jnp.cos(jnp.arange(float(model.parameters)))
    state = model.own(model.unravel(w))
    again = make()
    again.load_state_dict(state, strict=True)
    np.testing.assert_array_equal(
        np.concatenate([p.detach().numpy().ravel() for p in again.parameters() if p.requires_grad]), w
    )
    for n, t in module.state_dict().items():
        if n.split(".")[0] in ("scale", "frozen"):
            assert torch.equal(state[n], t)
    assert len({t.data_ptr() for t in state.values()}) == len(state)  # tied weights too: each can be saved alone
    np.testing.assert_allclose(
        model.apply(model.unravel(w), x, None), their_outputs_and_gradient(again.eval(), x)[0], rtol=1e-12
    )


# Randomness.


def dropping():
    return nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.5), nn.Linear(50, 3)).double()


@pytest.mark.parametrize("compiled", [False, True], ids=["calls", "compiled"])
def test_dropout_follows_from_the_key(compiled):
    if compiled:
        needs_torchax()
    torch.manual_seed(0)
    model = from_torch(dropping(), X[:6], compile=compiled)
    w = model.unravel(model.flat())
    torch.manual_seed(9)
    before = torch.get_rng_state()
    apply = jax.jit(model.apply)
    first, again, other = (apply(w, X[:6], key) for key in (KEYS[0], KEYS[0], KEYS[1]))
    assert torch.equal(torch.get_rng_state(), before)
    assert bits(first) == bits(again)
    assert np.abs(first - other).max() > 1e-3
    assert bits(apply(w, X[:6], None)) == bits(apply(w, X[:6], None))
    both = jax.vmap(lambda key: model.apply(w, X[:6], key))(KEYS)
    np.testing.assert_allclose(both, jnp.stack([first, other]), rtol=1e-12)


def test_the_masks_of_clients_rounds_and_steps_differ_and_those_of_engines_do_not():
    """Clients have the same single row, so that updates differ by their masks only."""
    rows = np.repeat(X[:1], 3, axis=0)
    data = fl.by_client(rows, np.zeros(3, int), np.arange(3), test=0)
    torch.manual_seed(0)
    task = fl.Task("t", data, from_torch(dropping(), X[:2], compile=False)).load()

    def run(engine, rounds=2, **more):
        return last(engine, fl.FedDR(eta=2.0), task.federation, fl.GD(0.1) if more else SGD, task.w, rounds)

    SGD = fl.SGD(0.1, batch_size=1, steps=1)
    record, again = run(fl.simulate), run(fl.simulate)
    assert bits(record.server) == bits(again.server)
    moved = [np.asarray(record.clients[k].x) for k in range(3)]
    assert min(np.abs(moved[i] - moved[j]).max() for i, j in ((0, 1), (0, 2), (1, 2))) > 1e-3
    np.testing.assert_allclose(run(fl.reference).w, record.w, rtol=1e-12)
    # One client, a step of size 0 but for rounding: the gradients of two steps, and of two rounds, differ.
    alone = task.federation.objective(0)
    grads = [
        alone.batch_grad(task.w, np.array([0]), np.array([True]), jax.random.fold_in(KEYS[0], s)) for s in range(2)
    ]
    assert np.abs(grads[0] - grads[1]).max() > 1e-3
    full = [alone.grad(task.w) for _ in range(2)]  # without a key nothing is dropped
    assert bits(full[0]) == bits(full[1])


def test_threads_do_not_disturb_each_others_seeds():
    torch.manual_seed(0)
    model = from_torch(dropping(), X, compile=False)
    w, apply = model.flat(), jax.jit(model.apply)
    keys = jax.random.split(jax.random.key(0), 8)
    alone = [bits(apply(w, X, key)) for key in keys]
    wrong = []

    def work(i):
        for _ in range(30):
            if bits(apply(w, X, keys[i])) != alone[i]:
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_values_may_also_be_handed_back_as_on_an_accelerator(monkeypatch):
    """There programs have no memory that the host could write to."""
    expected = jax.grad(lambda w: jnp.sum(from_torch(NET, X[:2], compile=False).apply(w, X, None) ** 2))
    model = from_torch(NET, X[:2], compile=False)
    w = model.flat()
    found = expected(w)
    monkeypatch.setattr(calls, "in_memory", lambda: False)
    model = from_torch(NET, X[:2], compile=False)
    np.testing.assert_array_equal(jax.grad(lambda w: jnp.sum(model.apply(w, X, None) ** 2))(w), found)


def test_derivatives_in_anything_but_the_parameters_are_refused():
    """They would come out as 0."""
    model = from_torch(NET, X[:2], compile=False)
    with pytest.raises(ValueError, match="in the parameters only"):
        jax.grad(lambda x: jnp.sum(model.apply(model.flat(), x, None)))(X)


# What is refused.


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.of = nn.Linear(4, 3).double()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += self.training
        return self.of(x)


class Clamping(nn.Linear):
    def forward(self, x):
        with torch.no_grad():
            self.weight.clamp_(-0.01, 0.01)
        return super().forward(x)


class Pair(nn.Linear):
    def forward(self, x):
        return super().forward(x), x


class Frozen(nn.Module):
    """A layer whose statistics are fixed, since it never goes into training."""

    def __init__(self):
        super().__init__()
        self.norm, self.of = nn.BatchNorm1d(4).double(), nn.Linear(4, 3).double()

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x):
        return self.of(self.norm(x))


class Of(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.of, self.f = nn.Linear(4, 3).double(), f

    def forward(self, x):
        return self.f(self.of(x))


def linear():
    return nn.Linear(4, 3).double()


REFUSED = {
    "a number": (lambda: 3, X, "takes an nn.Module, or a function that makes one, got 3"),
    "a function of arguments": (lambda: lambda n: linear(), X, "called without arguments"),
    "a function of nothing": (lambda: lambda: 3, X, "must make an nn.Module, but returns 3"),
    "no parameters": (lambda: nn.ReLU(), X, "ReLU has no parameters that require a gradient"),
    "all frozen": (lambda: linear().requires_grad_(False), X, "has no parameters that require a gradient"),
    "lazy": (lambda: nn.LazyLinear(3), X, "parameters without a shape yet; call it once on a batch"),
    "half": (lambda: linear().half(), X, r"all be float32 or all float64, got float16; use module.float\(\)"),
    "mixed": (lambda: nn.Sequential(linear(), nn.Linear(3, 3)), X, "got float32, float64; use module.float"),
    "elsewhere": (lambda: linear().to("meta"), X, r"is on meta; bring it as module.cpu\(\)"),
    "batch norm": (
        lambda: nn.Sequential(linear(), nn.BatchNorm1d(3).double()),
        X,
        r"keeps state besides its parameters \(1 is a BatchNorm1d\).*replace BatchNorm by GroupNorm or LayerNorm",
    ),
    "batch norm, one row": (lambda: nn.Sequential(linear(), nn.BatchNorm1d(3).double()), X[:1], "keeps state"),
    "instance norm": (
        lambda: nn.Sequential(nn.Unflatten(1, (2, 2)), nn.InstanceNorm1d(2, track_running_stats=True), linear()),
        X,
        "is a InstanceNorm1d",
    ),
    "a buffer that changes": (Counting, X, r"keeps state besides its parameters \(calls changes in training\)"),
    "spectral norm": (
        lambda: nn.utils.parametrizations.spectral_norm(linear()),
        X,
        "changes in training.*spectral_norm by weight_norm",
    ),
    "parameters that change": (lambda: Clamping(4, 3).double(), X, "changes its own parameters when it is called"),
    "two outputs": (lambda: Pair(4, 3).double(), X, "must return one tensor, but returns tuple"),
    "a mean": (lambda: Of(torch.mean), X, r"one row for each of its inputs, .* returns shape \(\)"),
    "transposed": (lambda: Of(torch.t), X, r"one row for each of its inputs, .* returns shape \(3, 30\)"),
    "a squeeze": (lambda: Of(lambda x: x[:, 0].squeeze()), X, r"returns shape \(\); note that squeeze\(\)"),
    "classes": (lambda: Of(lambda x: x.argmax(1)), X, "must return floats, but returns torch.int64"),
    "other inputs": (linear, X[:, :2], r"Linear does not take inputs of float64\[30, 2\]"),
    "integers": (linear, np.ones((2, 4), int), "Integers stay integers, as an embedding needs them"),
    "no batch": (linear, np.float64(3), "x must be a batch of inputs"),
    "unequal": (Words, (np.zeros((2, 3), int), X[:3]), "x must be a batch of inputs"),
    "words": (linear, np.array(["a"]), "x must be an array of numbers"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    make, x, words = REFUSED[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # lazy layers are new, says PyTorch
        module = make()
    with pytest.raises(ValueError, match=words):
        from_torch(module, x)


def test_float64_needs_jax_to_have_it():
    with jax.enable_x64(False), pytest.raises(ValueError, match=r"float64, but JAX computes in float32; use module"):
        from_torch(linear(), X)


def test_statistics_that_stay_fixed_are_constants():
    model = from_torch(Frozen(), X[:5], compile=False)
    assert model.parameters == 15 + 8
    assert set(model.own(model.flat())) == set(Frozen().state_dict())


def test_rows_that_a_module_couples_are_refused_before_the_run():
    couples = Of(lambda x: x - x.mean(dim=0, keepdim=True))
    task = fl.Task("t", DATA, from_torch(couples, X[:5], compile=False)).load()
    with pytest.raises(ValueError, match="depends on the other rows of its batch"):
        fl.simulate(fl.FedAvg(), task.federation, fl.SGD(0.1), task.w, 1)
    apart = fl.Task("t", DATA, from_torch(NET, X[:5], compile=False)).load()
    fl.simulate(fl.FedAvg(), apart.federation, fl.SGD(0.1), apart.w, 1)


def test_what_cannot_be_compiled_says_why_if_it_must_be():
    needs_torchax()
    with pytest.raises(ValueError, match=r"Of is not compiled: torchax cannot .*torch 2.*torchax 0.*Leave compile out"):
        from_torch(Of(lambda x: x if float(x.sum()) > 0 else 2 * x), X, compile=True)
    assert from_torch(Of(lambda x: x if float(x.sum()) > 0 else 2 * x), X).how == "PyTorch by callbacks"


def test_a_module_that_was_not_brought_gets_the_right_sentence():
    with pytest.raises(
        ValueError, match=r"'t': model must be a Model, .* got a Sequential; use models.from_torch\(module"
    ):
        fl.Task("t", DATA, NET).load()
    with pytest.raises(ValueError, match=r"got a int\."):
        fl.Task("t", DATA, 3).load()
    for bring in (fl.models.from_linen, fl.models.from_nnx, fl.models.from_equinox):
        with pytest.raises(ValueError, match=r"does not take a Sequential; use models.from_torch\(module, x\)"):
            bring(NET, *([X] if bring is fl.models.from_linen else []))


def test_a_module_of_another_library_is_sent_there():
    eqx = pytest.importorskip("equinox")
    layer = eqx.nn.Linear(4, 3, key=jax.random.key(0))
    with pytest.raises(ValueError, match=r"got a Linear; use models.from_equinox\(lambda key: \.\.\.\)"):
        fl.Task("t", DATA, layer).load()


@pytest.mark.parametrize("wrong", ["outputs", "gradients"])
def test_what_torchax_gets_wrong_is_not_compiled(wrong, monkeypatch):
    """Another version may: outputs, or derivatives alone, that differ from PyTorch's."""
    needs_torchax()
    from fedloom.pytorch.compiled import Compiled

    right = Compiled.apply

    def apply(self, params, x, key):
        if wrong == "outputs":
            return right(self, params, x, key) * 1.01
        return right(self, [jax.lax.stop_gradient(params[0]), *params[1:]], x, key)

    monkeypatch.setattr(Compiled, "apply", apply)
    assert from_torch(NET, X[:2]).how == "PyTorch by callbacks"
    with pytest.raises(ValueError, match="torchax gives other numbers than PyTorch"):
        from_torch(NET, X[:2], compile=True)
