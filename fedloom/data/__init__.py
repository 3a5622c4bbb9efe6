"""Federated data: where the clients' examples come from, and who owns which."""

from fedloom.data.dataset import Dataset as Dataset
from fedloom.data.examples import Examples as Examples
from fedloom.data.examples import examples as examples
from fedloom.data.federated import FederatedData as FederatedData
from fedloom.data.federated import by_client as by_client
from fedloom.data.federated import federated as federated
from fedloom.data.federated import held_out as held_out
from fedloom.data.federated import natural as natural
from fedloom.data.quadratics import Quadratics as Quadratics
from fedloom.data.quadratics import quadratics as quadratics
from fedloom.data.split import Split as Split
from fedloom.data.synthetic import feddyn_synthetic as feddyn_synthetic
from fedloom.data.synthetic import synthetic as synthetic
