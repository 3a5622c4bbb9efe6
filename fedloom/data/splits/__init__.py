"""Splits: pure functions from labels or keys and a seed to a `Split`, one for each way that the papers divide data."""

from collections.abc import Callable

from fedloom.data.split import Split
from fedloom.data.splits.basic import by_key as by_key
from fedloom.data.splits.basic import iid as iid
from fedloom.data.splits.basic import iid_balanced as iid_balanced
from fedloom.data.splits.basic import shards as shards
from fedloom.data.splits.basic import train_test as train_test
from fedloom.data.splits.basic import train_validation as train_validation
from fedloom.data.splits.classes import authors_classes as authors_classes
from fedloom.data.splits.classes import digits_p as digits_p
from fedloom.data.splits.classes import digits_p_classes as digits_p_classes
from fedloom.data.splits.classes import fedprox_femnist as fedprox_femnist
from fedloom.data.splits.classes import fedprox_mnist as fedprox_mnist
from fedloom.data.splits.classes import of_classes as of_classes
from fedloom.data.splits.priors import dirichlet as dirichlet
from fedloom.data.splits.priors import dirichlet_priors as dirichlet_priors
from fedloom.data.splits.priors import latent_dirichlet as latent_dirichlet
from fedloom.data.splits.priors import pachinko as pachinko
from fedloom.data.splits.sizes import balanced_sizes as balanced_sizes
from fedloom.data.splits.sizes import lognormal_sizes as lognormal_sizes
from fedloom.data.splits.sizes import power_law_sizes as power_law_sizes

SPLITS: dict[str, Callable[..., Split]] = {
    "iid": iid,
    "iid_balanced": iid_balanced,
    "dirichlet": dirichlet,
    "latent_dirichlet": latent_dirichlet,
    "pachinko": pachinko,
    "digits_p": digits_p,
    "shards": shards,
    "by_key": by_key,
    "fedprox_mnist": fedprox_mnist,
    "fedprox_femnist": fedprox_femnist,
}
