"""What theorems say: assumptions, step sizes and bounds, one file for each paper; and the constants they need.

THEOREMS has them all by name.
"""

from fedloom.theory.asyncfeddr import ASYNCFEDDR
from fedloom.theory.asyncfeddr import asyncfeddr_alpha as asyncfeddr_alpha
from fedloom.theory.asyncfeddr import asyncfeddr_eta as asyncfeddr_eta
from fedloom.theory.asyncfeddr import asyncfeddr_rho as asyncfeddr_rho
from fedloom.theory.asyncfeddr import asyncfeddr_steps as asyncfeddr_steps
from fedloom.theory.constant import UNKNOWN as UNKNOWN
from fedloom.theory.constant import Constants as Constants
from fedloom.theory.constant import Measured as Measured
from fedloom.theory.constant import worst as worst
from fedloom.theory.feddane import FEDDANE
from fedloom.theory.feddr import FEDDR
from fedloom.theory.feddyn import FEDDYN
from fedloom.theory.fedopt import FEDOPT
from fedloom.theory.fedprox import FEDPROX
from fedloom.theory.linear_speedup import LINEAR_SPEEDUP
from fedloom.theory.measure import constants as constants
from fedloom.theory.scaffold import SCAFFOLD
from fedloom.theory.theorem import Check as Check
from fedloom.theory.theorem import Range as Range
from fedloom.theory.theorem import Setting as Setting
from fedloom.theory.theorem import Theorem as Theorem

THEOREMS: dict[str, Theorem] = {
    **FEDDYN,
    **LINEAR_SPEEDUP,
    **FEDDANE,
    **FEDDR,
    **ASYNCFEDDR,
    **FEDOPT,
    **SCAFFOLD,
    **FEDPROX,
}
