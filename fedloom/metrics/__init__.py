"""What is measured: losses and metrics of examples, their evaluation, and figures of a population."""

from fedloom.metrics.by_name import LOSSES as LOSSES
from fedloom.metrics.by_name import METRICS as METRICS
from fedloom.metrics.evaluation import ByClient as ByClient
from fedloom.metrics.population import consensus_error as consensus_error
from fedloom.metrics.population import dissimilarity as dissimilarity
from fedloom.metrics.population import drift as drift
from fedloom.metrics.population import gradient_mapping_norm as gradient_mapping_norm
from fedloom.metrics.population import gradient_norm as gradient_norm
from fedloom.metrics.population import gradient_variance as gradient_variance
from fedloom.metrics.scores import Criterion as Criterion
from fedloom.metrics.scores import Metric as Metric
from fedloom.metrics.scores import accuracy as accuracy
from fedloom.metrics.scores import auc as auc
from fedloom.metrics.scores import binary_accuracy as binary_accuracy
from fedloom.metrics.scores import binary_cross_entropy as binary_cross_entropy
from fedloom.metrics.scores import cross_entropy as cross_entropy
from fedloom.metrics.scores import loss as loss
from fedloom.metrics.scores import mse as mse
from fedloom.metrics.scores import recall_at as recall_at
from fedloom.metrics.scores import squared_error as squared_error
from fedloom.metrics.scores import token_accuracy as token_accuracy
from fedloom.metrics.torch_losses import from_torch as from_torch
