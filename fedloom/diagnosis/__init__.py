"""Theory on a task: which theorem says what about an experiment, with constants that are measured."""

from fedloom.diagnosis.of_run import Along as Along
from fedloom.diagnosis.of_run import Point as Point
from fedloom.diagnosis.of_run import along as along
from fedloom.diagnosis.of_task import Diagnosis as Diagnosis
from fedloom.diagnosis.of_task import Method as Method
from fedloom.diagnosis.of_task import diagnose as diagnose
from fedloom.diagnosis.run_text import along_plain as along_plain
from fedloom.diagnosis.run_text import along_text as along_text
from fedloom.diagnosis.setting import setting_of as setting_of
from fedloom.diagnosis.simulated import Curve as Curve
from fedloom.diagnosis.simulated import Simulated as Simulated
from fedloom.diagnosis.starts import PRACTICE as PRACTICE
from fedloom.diagnosis.starts import Start as Start
from fedloom.diagnosis.starts import Suggestion as Suggestion
from fedloom.diagnosis.starts import suggest as suggest
from fedloom.diagnosis.suggestion import FromTheory as FromTheory
from fedloom.diagnosis.suggestion import from_theory as from_theory
from fedloom.diagnosis.task_text import plain as plain
from fedloom.diagnosis.task_text import text as text
from fedloom.diagnosis.verdict import StepSize as StepSize
from fedloom.diagnosis.verdict import Verdict as Verdict
