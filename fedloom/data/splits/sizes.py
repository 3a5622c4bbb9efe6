"""How many examples each client has: positive integers that add up to n."""

import numpy as np

from fedloom.data.splits.checks import generator, positive, require, require_clients
from fedloom.hyperparameters import interval


def balanced_sizes(n: int, clients: int) -> np.ndarray:
    """Sizes that differ by at most 1."""
    require_clients("balanced_sizes", n, clients)
    return n // clients + (np.arange(clients) < n % clients)


def lognormal_sizes(n: int, clients: int, sigma: float, seed: int) -> np.ndarray:
    """FedDyn's unbalanced sizes (arXiv:2111.04263): lognormal(log(n / clients), sigma), rescaled to add up to n.

    Departures: the authors round down and give what is left over to the first client; here it goes to those who lost
    most by rounding, and no client ends up without an example.
    """
    require_clients("lognormal_sizes", n, clients)
    require("lognormal_sizes", interval(0, 1e12, "[]"), sigma=sigma)
    return _rounded(n, sigma * generator("lognormal_sizes", seed).standard_normal(clients))


def power_law_sizes(n: int, clients: int, exponent: float, seed: int) -> np.ndarray:
    """Sizes with a Pareto tail, P(size > s) ~ s^-exponent, rescaled to add up to n."""
    require_clients("power_law_sizes", n, clients)
    require("power_law_sizes", positive, exponent=exponent)
    return _rounded(n, generator("power_law_sizes", seed).standard_exponential(clients) / exponent)


def _rounded(n: int, logs: np.ndarray) -> np.ndarray:
    """Integers >= 1, adding up to n, in proportion to exp(logs) as nearly as that allows."""
    shares = np.exp(logs - logs.max())
    above = np.maximum(n * shares / shares.sum() - 1, 0)  # what each has beyond the one example that all have
    extra = n - len(logs)
    exact = above * (extra / max(above.sum(), 1e-300))
    sizes = np.floor(exact).astype(np.int64)
    most_lost = np.argsort(sizes - exact, kind="stable")
    sizes[most_lost[: extra - sizes.sum()]] += 1
    return sizes + 1
