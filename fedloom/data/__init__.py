"""Federated data: where the clients' examples come from, and who owns which."""

from fedloom.data.dataset import Dataset as Dataset
from fedloom.data.empirical_risk import Examples as Examples
from fedloom.data.empirical_risk import examples as examples
from fedloom.data.federated_data import FederatedData as FederatedData
from fedloom.data.federated_data import by_client as by_client
from fedloom.data.federated_data import federated as federated
from fedloom.data.federated_data import held_out as held_out
from fedloom.data.federated_data import natural as natural
from fedloom.data.quadratic import Quadratics as Quadratics
from fedloom.data.quadratic import quadratics as quadratics
from fedloom.data.split import Split as Split
from fedloom.data.synthetic_data import feddyn_synthetic as feddyn_synthetic
from fedloom.data.synthetic_data import synthetic as synthetic
