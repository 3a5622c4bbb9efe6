"""Float64 everywhere: the tests are identities. Silent rank promotion hides shape errors, so it is an error here."""

import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
