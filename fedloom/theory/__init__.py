"""What theorems say: step sizes with which methods converge, one file for each paper."""

from fedloom.theory.asyncfeddr import asyncfeddr_alpha as asyncfeddr_alpha
from fedloom.theory.asyncfeddr import asyncfeddr_eta as asyncfeddr_eta
from fedloom.theory.asyncfeddr import asyncfeddr_rho as asyncfeddr_rho
from fedloom.theory.asyncfeddr import asyncfeddr_steps as asyncfeddr_steps
