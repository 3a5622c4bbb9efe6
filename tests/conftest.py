"""Float64 everywhere: the tests are identities. Silent rank promotion hides shape errors, so it is an error here.

Most of the time goes into compiling: programs are kept between the test processes, and between runs.
"""

import pathlib

import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
CACHE = {
    "jax_compilation_cache_dir": str(pathlib.Path(__file__).parent.parent / ".jax_cache"),
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": 0,
}
for name, value in CACHE.items():
    jax.config.update(name, value)
