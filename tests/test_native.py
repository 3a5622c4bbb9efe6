"""Kernels in C++: equal to the layers in JAX in values and gradients, and never in the way of a run."""

import operator
import platform
import shutil
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom.engines.plan import Plan
from fedloom.experiments.about import KERNELS, other_versions, versions
from fedloom.models import blocks, layers
from fedloom.native import build
from tests.comparing import close_float32

BLOCKS = {False: blocks.conv_relu, True: blocks.conv_relu_pool}


def example(*shape, out, seed=0):
    """A layer's parameters and images, in float32."""
    rng, channels = np.random.default_rng(seed), shape[-1]
    p = {"w": rng.normal(size=(3, 3, channels, out)) / np.sqrt(9 * channels), "b": rng.normal(size=out)}
    return jax.tree.map(np.float32, p), np.float32(rng.normal(size=shape))


def in_jax(p, x, padding, pool):
    """The definition, in the precision of the parameters."""
    y = layers.conv_by_xla(p, x, 1, padding)
    return layers.relu_pool(y) if pool else jax.nn.relu(y)


def calls_kernels(f, *arguments):
    return "ffi_call" in str(jax.make_jaxpr(lambda *a: f(*a))(*arguments))  # a function of its own: traces are kept


SHAPES = [
    ((1, 6, 6, 16), 16, "VALID"),
    ((3, 7, 11, 16), 48, "VALID"),
    ((2, 13, 8, 32), 64, "SAME"),
    ((4, 9, 10, 48), 80, 2),
]


@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize(("shape", "out", "padding"), SHAPES)
def test_values_and_gradients(compiler, shape, out, padding, pool):
    p, x = example(*shape, out=out)
    assert calls_kernels(lambda p, x: BLOCKS[pool](p, x, padding), p, x)
    y, gradient = jax.vjp(lambda p, x: BLOCKS[pool](p, x, padding), p, x)
    wide = jax.tree.map(np.float64, (p, x))
    expected, its_gradient = jax.vjp(lambda p, x: in_jax(p, x, padding, pool), *wide)
    dy = np.float32(np.random.default_rng(1).normal(size=y.shape))
    close_float32(y, expected)
    close_float32(gradient(dy), its_gradient(np.float64(dy)))


@pytest.mark.exhaustive
@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs an x86 processor")
def test_narrower_vectors(compiler, monkeypatch):
    """What processors without AVX-512 run."""
    wide = build.kernels("conv")
    monkeypatch.setattr(build, "PROCESSOR", "-march=x86-64-v3")
    build._registered.cache_clear()
    assert build.kernels("conv") not in (None, wide)
    for shape in SHAPES:
        for pool in BLOCKS:
            test_values_and_gradients(compiler, *shape, pool)
    build._registered.cache_clear()


def test_tied_cells_share_the_gradient(compiler):
    """With a kernel of zeros all cells of a window tie, which the gradient of the kernel shows."""
    p, x = example(2, 8, 8, 16, out=16)
    p = {"w": np.zeros_like(p["w"]), "b": np.abs(p["b"])}
    ours = jax.grad(lambda p: jnp.sum(blocks.conv_relu_pool(p, x) ** 2))(p)
    theirs = jax.grad(lambda p: jnp.sum(layers.relu_pool(layers.conv_by_slices(p, x)) ** 2))(p)
    close_float32(ours, theirs)


def test_where_relu_is_zero_the_gradient_is_zero(compiler):
    p, x = example(2, 8, 8, 16, out=16)
    for pool in BLOCKS:
        loss = lambda p, x: jnp.sum(BLOCKS[pool]({**p, "b": p["b"] - 100}, x))  # noqa: B023, E731
        assert loss(p, x) == 0
        assert not any(np.any(g) for g in jax.tree.leaves(jax.grad(loss, (0, 1))(p, x)))


def test_divergence_is_seen(compiler):
    """A NaN is passed on, as by the layers in JAX."""
    p, x = example(1, 8, 8, 16, out=16)
    x[0, 5, 5, 3] = np.nan
    for pool in BLOCKS:
        y = BLOCKS[pool](p, x)
        assert np.isnan(np.asarray(in_jax(p, x, "VALID", pool))[np.isnan(y) == 0]).sum() == 0
        assert np.isnan(y).any()


@pytest.mark.parametrize("pool", [False, True])
def test_side_by_side(compiler, pool):
    """Clients with kernels of their own, with one kernel, or with the same images; and examples within clients."""
    made = [example(2, 7, 8, 16, out=32, seed=k) for k in range(3)]
    ps, xs = jax.tree.map(lambda *a: np.stack(a), *made)

    def gradients(p, x):
        return jax.value_and_grad(lambda p, x: jnp.sum(jnp.sin(BLOCKS[pool](p, x))), (0, 1))(p, x)

    def one_by_one(p, x):
        each = [gradients(a, b) for a, b in zip(p, x, strict=True)]
        return jax.tree.map(lambda *a: np.stack(a), *each)

    (p, x), apart = made[0], [made[k][0] for k in range(3)]
    close_float32(jax.vmap(gradients)(ps, xs), one_by_one(apart, xs))
    close_float32(jax.vmap(gradients, (None, 0))(p, xs), one_by_one([p] * 3, xs))
    close_float32(jax.vmap(gradients, (0, None))(ps, x), one_by_one(apart, [x] * 3))
    twice = jax.vmap(jax.vmap(lambda p, x: gradients(p, x[None]), (None, 0)))(ps, xs)
    assert twice[0].shape == (3, 2)
    close_float32(twice[0].sum(1), jax.vmap(gradients)(ps, xs)[0])


def test_what_does_not_fit_is_left_to_jax():
    p, x = example(2, 8, 8, 16, out=16)
    wide, narrow = (jax.tree.map(dtype, p) for dtype in (np.float64, np.float16))
    few, few_x = example(2, 8, 8, 3, out=16)
    odd, odd_x = example(2, 8, 8, 16, out=24)
    small = x[:, :5]
    for q, images in [(wide, x), (narrow, x), (few, few_x), (odd, odd_x), ({"w": p["w"]}, x), (p, small)]:
        for pool in BLOCKS:
            assert not calls_kernels(BLOCKS[pool], q, images)


def test_shapes_that_do_not_go_together_are_refused(compiler):
    """By JAX: in C++ they would be read, and written, beyond their ends."""
    p, x = example(2, 8, 8, 32, out=16)
    wrong = [({**p, "w": p["w"][:, :, :16]}, x), ({**p, "b": p["b"][:8]}, x), (p, x[..., :16])]
    for q, images in wrong:
        for pool in BLOCKS:
            with pytest.raises((TypeError, ValueError)):
                BLOCKS[pool](q, images)


def trained(plan):
    """Two rounds of a small network in float32."""
    _, x = example(24, 6, 6, 16, out=16)
    y = np.arange(24) % 16
    p, _ = example(1, 6, 6, 16, out=16)
    w, unravel = jax.flatten_util.ravel_pytree(p)

    def loss(p, rows, key):
        logits = jnp.mean(blocks.conv_relu_pool(p, rows[0]), (1, 2))
        return fl.metrics.cross_entropy(logits, rows[1])

    federation = fl.examples((x, y), np.array([9, 4, 6, 5]), loss, unravel)
    return list(fl.simulate(fl.FedAvg(), federation, fl.SGD(0.3, batch_size=3), w, 2, plan=plan))[-1].w


def test_every_plan(compiler, monkeypatch):
    """Loops, lanes and devices give what the layers in JAX give, and the same bits every time."""
    found = [trained(Plan(*plan)) for plan in [(3, 1), (2, 2)]]
    np.testing.assert_array_equal(found[1], trained(Plan(2, 2)))
    monkeypatch.setenv("FEDLOOM_NATIVE", "0")
    expected = trained(Plan(1, 1))
    for w in found:
        np.testing.assert_allclose(w, expected, rtol=0, atol=1e-5)
        assert np.any(w != expected)  # another rounding: the kernels were used


# Compiling.


@pytest.fixture
def clean(tmp_path, monkeypatch):
    """No kernels yet, in this process or in the cache."""
    monkeypatch.setattr(build, "cache_directory", lambda: tmp_path / "cache")
    build._registered.cache_clear()
    yield tmp_path / "cache" / "kernels"
    build._registered.cache_clear()


def fake(tmp_path, monkeypatch, *lines):
    """A compiler that does as it is told; $out is the file that it is to write."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = ["#!/bin/sh", 'if [ "$1" = --version ]; then echo 1; exit; fi', "for out; do :; done", *lines]
    (folder / "c++").write_text("\n".join(script) + "\n")
    (folder / "c++").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def falls_back(capfd):
    """The layer still works, and FedLoom has said why it is slower: once."""
    p, x = example(2, 8, 8, 16, out=16)
    for _ in range(2):
        assert not calls_kernels(blocks.conv_relu_pool, p, x)
    close_float32(blocks.conv_relu_pool(p, x), in_jax(p, x, "VALID", True))
    said = [line for line in capfd.readouterr().err.splitlines() if "slower" in line]
    assert len(said) == 1
    assert said[0].startswith("fedloom: ")
    return said[0]


def test_without_a_compiler(clean, monkeypatch, capfd):
    monkeypatch.setenv("PATH", "")
    assert "no C++ compiler" in falls_back(capfd)


@pytest.mark.parametrize(
    ("line", "words"),
    [("echo no headers >&2; exit 1", "no headers"), ("kill -SEGV $$", "exit code"), ("echo rubbish > $out", "cannot")],
)
def test_a_compiler_that_fails(clean, tmp_path, monkeypatch, capfd, line, words):
    fake(tmp_path, monkeypatch, line)
    assert words in falls_back(capfd)
    assert not list(clean.iterdir())  # nothing is left behind


def test_switched_off(monkeypatch, clean, capfd):
    monkeypatch.setenv("FEDLOOM_NATIVE", "0")
    p, x = example(2, 8, 8, 16, out=16)
    assert not calls_kernels(blocks.conv_relu_pool, p, x)
    assert capfd.readouterr().err == ""
    assert not clean.exists()


def test_two_at_once(clean, tmp_path, monkeypatch):
    """Each finds a whole file under the name, whichever of them wrote it; processes share nothing but the folder."""
    fake(tmp_path, monkeypatch, "printf half > $out; sleep 0.5; printf whole > $out")
    with ThreadPoolExecutor() as pool:
        found = [pool.submit(lambda: build._library("conv").read_text()) for _ in range(2)]
    assert [text.result() for text in found] == ["whole"] * 2
    assert len(list(clean.iterdir())) == 1


def test_another_source_is_compiled_again(clean, tmp_path, monkeypatch):
    fake(tmp_path, monkeypatch, "echo library > $out")
    sources = tmp_path / "sources"
    shutil.copytree(build.FOLDER, sources)
    monkeypatch.setattr(build, "FOLDER", sources)

    def made():
        return [(build._library(source), build.version(source)) for source in ("conv", "lstm")]

    def changed(name):
        before = made()
        assert made() == before
        (sources / name).write_text((sources / name).read_text() + "\n")
        return [all(map(operator.ne, *pair)) for pair in zip(before, made(), strict=True)]

    assert changed("conv.cc") == [True, False]
    assert changed("common.h") == [True, True]


def test_a_run_records_its_kernels(compiler, monkeypatch):
    """So that it is not resumed with layers that round differently."""
    p, x = example(2, 8, 8, 16, out=16)
    assert build.used_in(blocks.conv_relu_pool, p, x) == ["conv"]
    assert not build.used_in(layers.conv, p, x)
    recorded = versions(["native conv"])
    assert recorded["native conv"] == build.version("conv")
    assert KERNELS == {"native conv": "conv", "native lstm": "lstm"}
    monkeypatch.setenv("FEDLOOM_NATIVE", "0")
    assert not build.used_in(blocks.conv_relu_pool, p, x)
    assert other_versions(recorded, versions(KERNELS)) == [f"native conv {build.version('conv')} (here not used)"]
