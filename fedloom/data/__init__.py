"""Federations: where the clients' objectives come from."""

from fedloom.data.examples import Examples as Examples
from fedloom.data.examples import examples as examples
from fedloom.data.quadratics import Quadratics as Quadratics
from fedloom.data.quadratics import quadratics as quadratics
