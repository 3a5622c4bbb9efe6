"""A small federation and its twin for `transcriptions`: five quadratic clients, three dimensions."""

import numpy as np

import fedloom as fl
from tests import transcriptions as numpy_version

FEDERATION = fl.quadratics(clients=5, dimension=3, seed=11)
TWIN = numpy_version.Federation(FEDERATION.hessians, FEDERATION.centers, np.asarray(FEDERATION.weights))
W = np.array([2.0, -1.0, 0.5])
VECTOR = 3 * 8  # bytes of a model
