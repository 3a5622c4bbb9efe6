"""Experiments: values that determine runs, the runs themselves, and studies of several."""

from fedloom.experiments.changes import changed as changed
from fedloom.experiments.comparisons import compare as compare
from fedloom.experiments.definition import Experiment as Experiment
from fedloom.experiments.points import Range as Range
from fedloom.experiments.progress import Lines as Lines
from fedloom.experiments.progress import Live as Live
from fedloom.experiments.result import Result as Result
from fedloom.experiments.run_directory import read as read
from fedloom.experiments.runs import resume as resume
from fedloom.experiments.runs import run as run
from fedloom.experiments.settings import experiment as experiment
from fedloom.experiments.settings import from_config as from_config
from fedloom.experiments.settings import from_toml as from_toml
from fedloom.experiments.study import Study as Study
from fedloom.experiments.study import find_runs as find_runs
from fedloom.experiments.study import read_study as read_study
from fedloom.experiments.study import resume_study as resume_study
from fedloom.experiments.study import run_all as run_all
from fedloom.experiments.sweeps import Point as Point
from fedloom.experiments.sweeps import Select as Select
from fedloom.experiments.sweeps import best as best
from fedloom.experiments.sweeps import heat_map as heat_map
from fedloom.experiments.sweeps import ranking as ranking
from fedloom.experiments.sweeps import resume_sweep as resume_sweep
from fedloom.experiments.sweeps import sweep as sweep
from fedloom.experiments.sweeps import sweep_table as sweep_table
