"""Theory on a task: which theorem says what about an experiment, with constants that are measured."""

from fedloom.diagnosis.setting import setting_of as setting_of
from fedloom.diagnosis.starts import PRACTICE as PRACTICE
from fedloom.diagnosis.starts import Start as Start
from fedloom.diagnosis.starts import Suggestion as Suggestion
from fedloom.diagnosis.starts import suggest as suggest
from fedloom.diagnosis.suggestion import FromTheory as FromTheory
from fedloom.diagnosis.suggestion import from_theory as from_theory
