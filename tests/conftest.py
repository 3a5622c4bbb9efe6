"""Float64 everywhere: the tests are identities. Silent rank promotion hides shape errors, so it is an error here.

Most of the time goes into compiling. So programs are kept between the test processes and between runs, and XLA's older
code generator is used without optimization and in one piece, which compiles in a third of the time; XLA_FLAGS= (empty)
tests what users have. Each test process has a core: more threads of PyTorch or NumPy would wait for each other.
"""

import gc
import itertools
import os
import pathlib

os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1",
)

os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 3)  # so that plans of several devices can be run: a CPU is one by default
jax.config.update("jax_numpy_rank_promotion", "raise")
ROOT = pathlib.Path(__file__).parent.parent
CACHE = {
    "jax_compilation_cache_dir": str(ROOT / ".jax_cache"),
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": 0,
}
for name, value in CACHE.items():
    jax.config.update(name, value)

from fedloom.native import build  # noqa: E402 (JAX is configured first)

# Kernels, too, are compiled once for all; and JAX takes them from one place only.
build.cache_directory = lambda: ROOT / ".jax_cache"

gc.set_threshold(100_000, 20, 50)  # tracing makes so many objects that looking for garbage among them adds up

# Doctests are looked for in all modules, but these import Flower, which may not be installed.
collect_ignore = ["federation_processes.py", "flower_processes.py"]

MAPS = pathlib.Path("/proc/self/maps")
MOST_MAPS = 25_000  # Linux allows a process 65,530 pieces of memory; each compiled program takes several
tests = itertools.count(1)


def pytest_runtest_teardown() -> None:
    """Forget programs before there are too many: beyond the limit XLA crashes wherever it asks for memory next."""
    if next(tests) % 20 == 0 and MAPS.exists() and MAPS.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture(scope="session")
def compiler():
    """Skips tests of kernels where there is no compiler; where there is one, they must compile."""
    if not build._compiler():
        pytest.skip("needs a C++ compiler")
    assert all(map(build.kernels, build.SOURCES))


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    """What a test writes to a relative path does not end up in the checkout."""
    monkeypatch.chdir(tmp_path)


# What tools and tests may leave in the checkout.
CACHES = {".hypothesis", ".jax_cache", ".mypy_cache", ".pytest_cache", ".ruff_cache", "__pycache__"}
BEFORE = pytest.StashKey[set[str]]()


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[BEFORE] = set(os.listdir(ROOT))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if the tests have left anything in the checkout."""
    is_worker = hasattr(session.config, "workerinput")  # of xdist
    if not is_worker and (debris := set(os.listdir(ROOT)) - session.config.stash[BEFORE] - CACHES):
        names = ", ".join(sorted(debris))
        session.config.get_terminal_writer().line(f"\nThe tests left files in the checkout: {names}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
