"""Evidence: methods at equal cost, targets that are reached, and what seeds and test examples can tell.

Everything here is computed from the rows of finished runs; nothing is run.
"""

from fedloom.evidence.groups import labels as labels
from fedloom.evidence.statistics import LEVEL as LEVEL
from fedloom.evidence.statistics import Difference as Difference
from fedloom.evidence.statistics import crossed as crossed
from fedloom.evidence.statistics import holm as holm
from fedloom.evidence.statistics import looks as looks
from fedloom.evidence.statistics import nested as nested
from fedloom.evidence.statistics import paired as paired
from fedloom.evidence.targets import Target as Target
from fedloom.evidence.targets import reached as reached
from fedloom.evidence.targets import running_means as running_means
from fedloom.evidence.targets import target as target
from fedloom.evidence.verdicts import Against as Against
from fedloom.evidence.verdicts import Verdict as Verdict
from fedloom.evidence.verdicts import separated as separated
from fedloom.evidence.verdicts import verdict as verdict
from fedloom.evidence.verdicts import words as words
from fedloom.experiments.terms import check_target as check_target
