"""Float64 everywhere: the tests are identities. Silent rank promotion hides shape errors, so it is an error here.

Most of the time goes into compiling. So programs are kept between the test processes and between runs, and XLA's older
code generator is used with little optimization, which compiles in two thirds of the time; XLA_FLAGS= (empty) tests what
users have.
"""

import gc
import itertools
import os
import pathlib

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=1")

import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 3)  # so that plans of several devices can be run: a CPU is one by default
jax.config.update("jax_numpy_rank_promotion", "raise")
CACHE = {
    "jax_compilation_cache_dir": str(pathlib.Path(__file__).parent.parent / ".jax_cache"),
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": 0,
}
for name, value in CACHE.items():
    jax.config.update(name, value)

MAPS = pathlib.Path("/proc/self/maps")
MOST_MAPS = 25_000  # Linux allows a process 65,530 pieces of memory; each compiled program takes several
tests = itertools.count(1)


def pytest_runtest_teardown() -> None:
    """Forget programs before there are too many: beyond the limit XLA crashes wherever it asks for memory next."""
    if next(tests) % 20 == 0 and MAPS.exists() and MAPS.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
        gc.collect()
