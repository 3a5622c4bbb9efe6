"""Theory on a task: which theorem says what about an experiment, with constants that are measured."""

from fedloom.diagnosis.along import Along as Along
from fedloom.diagnosis.along import Point as Point
from fedloom.diagnosis.along import along as along
from fedloom.diagnosis.along_text import along_plain as along_plain
from fedloom.diagnosis.along_text import along_text as along_text
from fedloom.diagnosis.diagnose import Diagnosis as Diagnosis
from fedloom.diagnosis.diagnose import Method as Method
from fedloom.diagnosis.diagnose import diagnose as diagnose
from fedloom.diagnosis.setting import setting_of as setting_of
from fedloom.diagnosis.simulated import Curve as Curve
from fedloom.diagnosis.simulated import Simulated as Simulated
from fedloom.diagnosis.text import plain as plain
from fedloom.diagnosis.text import text as text
from fedloom.diagnosis.verdict import StepSize as StepSize
from fedloom.diagnosis.verdict import Verdict as Verdict
