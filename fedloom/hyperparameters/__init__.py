"""Hyperparameters: fields that know their domains, and optax optimizers by name."""

from fedloom.hyperparameters.fields import Domain as Domain
from fedloom.hyperparameters.fields import brief as brief
from fedloom.hyperparameters.fields import check_fields as check_fields
from fedloom.hyperparameters.fields import choice as choice
from fedloom.hyperparameters.fields import count as count
from fedloom.hyperparameters.fields import finite as finite
from fedloom.hyperparameters.fields import flag as flag
from fedloom.hyperparameters.fields import for_client as for_client
from fedloom.hyperparameters.fields import frozen as frozen
from fedloom.hyperparameters.fields import hyper as hyper
from fedloom.hyperparameters.fields import interval as interval
from fedloom.hyperparameters.fields import make_from as make_from
from fedloom.hyperparameters.fields import misplaced_arrays as misplaced_arrays
from fedloom.hyperparameters.fields import nearest as nearest
from fedloom.hyperparameters.fields import nonnegative as nonnegative
from fedloom.hyperparameters.fields import optax_optimizer as optax_optimizer
from fedloom.hyperparameters.fields import optional as optional
from fedloom.hyperparameters.fields import per_client_fields as per_client_fields
from fedloom.hyperparameters.fields import positive as positive
from fedloom.hyperparameters.fields import probability as probability
from fedloom.hyperparameters.fields import static as static
from fedloom.hyperparameters.optimizers import OPTIMIZERS as OPTIMIZERS
from fedloom.hyperparameters.optimizers import Optimizer as Optimizer
from fedloom.hyperparameters.optimizers import optimizer as optimizer
