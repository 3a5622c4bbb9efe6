"""What theorems say: step sizes with which methods converge, one file for each paper; and the constants they need."""

from fedloom.theory.asyncfeddr import asyncfeddr_alpha as asyncfeddr_alpha
from fedloom.theory.asyncfeddr import asyncfeddr_eta as asyncfeddr_eta
from fedloom.theory.asyncfeddr import asyncfeddr_rho as asyncfeddr_rho
from fedloom.theory.asyncfeddr import asyncfeddr_steps as asyncfeddr_steps
from fedloom.theory.constant import UNKNOWN as UNKNOWN
from fedloom.theory.constant import Constants as Constants
from fedloom.theory.constant import Measured as Measured
from fedloom.theory.constant import worst as worst
from fedloom.theory.measure import constants as constants
