"""Theory on a task: which theorem says what about an experiment, with constants that are measured."""

from fedloom.diagnosis.setting import setting_of as setting_of
