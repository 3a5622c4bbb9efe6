"""About 300 wrong command lines and files: each is answered with one sentence and exit code 2, and leaves nothing.

An entry is a command line and a pattern of what the sentence must mention. `{...}` in a command line is a file or a
directory that exists for all of them: see FILES and `world`.
"""

import re
import shlex

import pytest

from fedloom import cli
from fedloom.experiments import compare, experiment, run, sweep

TASK = """
import numpy as np, fedloom as fl
data = fl.by_client(np.arange(12.0)[:, None], np.arange(12) % 2, np.arange(12) % 3, test=0.25)
task = fl.Task("mine", data, fl.models.mlp(1, 2))
number = 3
def fails(seed):
    raise KeyError("no such column")
bad = fl.Task("bad", fails, fl.models.mlp(1, 2))
empty = fl.Task("empty", data)
def exits(seed):
    raise SystemExit(0)
ends = fl.Task("ends", exits, fl.models.mlp(1, 2))
wrong = fl.Task("wrong", lambda seed: [1, 2], fl.models.mlp(1, 2))
"""
OWN = """
import dataclasses, jax.numpy as jnp, fedloom as fl
from fedloom.hyperparameters import positive
from fedloom.metrics import Metric, accuracy as ours
from fedloom.models import Model
@fl.frozen
class Mine(fl.FedAvg):
    lr: float = fl.hyper(positive, "step size", default=1.0)
@fl.frozen
class Backwards(fl.FedAvg):
    def receive(self, s, mean, cohort):
        return fl.Server(s.w - mean)
@fl.frozen
class Fails(fl.FedAvg):
    def receive(self, s, mean, cohort):
        raise KeyError("lost")
@fl.frozen
class Asserts(fl.FedAvg):
    def receive(self, s, mean, cohort):
        assert mean is None, "mine"
class Undecorated(fl.FedAvg):
    pass
@dataclasses.dataclass(frozen=True)
class Dataclass(fl.FedAvg):
    pass
class Bare(fl.Round):
    pass
@fl.frozen
class Abstract(fl.Round):
    pass
@fl.frozen
class Steps(fl.GD):
    pass
def none():
    return None
def wide(width):
    return fl.models.mlp(64, width, 10)
def flat():
    return fl.models.mlp(3, 10)
def fails():
    raise OSError(5, "the weights")
broken = Model("broken", lambda key: {"a": jnp.ones(3)}, lambda params, x, key: x @ params["b"])
def mean(outputs, y):
    return jnp.mean(outputs)
def lost(outputs, y):
    raise KeyError("lost")
def three(outputs, y, more):
    return outputs[:, 0]
scalar = Metric("scalar", lambda outputs, y: (jnp.sum(outputs), len(y)))
accuracy = Metric("accuracy", lambda outputs, y: (outputs[:, 0], jnp.ones(len(y))))
raises = Metric("raises", lambda outputs, y: outputs["a"])
@fl.frozen
class Grows(fl.FedAvg):
    def receive(self, s, mean, cohort):
        return fl.Server(jnp.concatenate([s.w, mean]))
@fl.frozen
class Stuck(fl.GD):
    def step(self, state, s, objective, key):
        return state.velocity
@fl.frozen
class Nobody(fl.cohorts.CohortRule):
    def over(self, p):
        raise RuntimeError("nobody is there")
    def room(self, clients):
        return 1
"""
FILES = {
    "own.py": TASK,
    "kinds.py": OWN,
    "binary.py": b"x = 1\n\x00\xff",
    "raises.py": "x = 1\nraise RuntimeError('first\\nsecond')\n",
    "exits.py": "import sys\nsys.exit('bye')\n",
    "syntax.py": "def f(:\n",
    "imports.py": "import no_such_module\n",
    "bytes.toml": b"\xff\xfe\x00",
    "empty.toml": "",
    "syntax.toml": "rounds = = 3",
    "twice.toml": 'task = "quadratics"\ntask = "digits"',
    "field.toml": 'task = "quadratics"\nround = 3',
    "type.toml": 'task = "quadratics"\nrounds = "three"',
    "float.toml": 'task = "quadratics"\nrounds = 2.5',
    "negative.toml": 'task = "quadratics"\nrounds = -1',
    "nan.toml": 'task = "quadratics"\n[algorithm]\nname = "feddyn"\nalpha = nan',
    "inf.toml": 'task = "quadratics"\n[algorithm]\nname = "feddyn"\nalpha = inf',
    "algorithm.toml": 'task = "quadratics"\nalgorithm = "fedynn"',
    "table.toml": 'task = "quadratics"\n[algorithm]\nname = "feddyn"\nalpha = {x = 1}',
    "number.toml": 'task = "quadratics"\nalgorithm = 3',
    "nameless.toml": 'task = "quadratics"\nalgorithm = "feddyn"\n[solver]\nname = "sdg"',
    "task.toml": "task = 3",
    "date.toml": 'task = "quadratics"\nrounds = 2020-01-01',
    "unknown.toml": 'task = "quadratix"',
    "good.toml": 'task = "quadratics"\nrounds = 1',
    "text.txt": "hello",
}

WRONG = [
    # The command itself.
    ("", "required: command"),
    ("compar", "'compar'.*'compare'"),
    ("COMPARE", "'COMPARE'"),
    ("--versio", "--versio|required: command"),
    ("compare --zzz", "no option --zzz"),
    ("compare --rounds", "--rounds: expected one argument"),
    ("compare -x", "no option -x"),
    ("compare quadratics --solver.lr", "--solver.lr needs a value"),
    ("list", "required: what"),
    ("list things", "'things'"),
    ("list tasks models", "does not take the argument 'models'"),
    ("list tasks --json", "no option --json"),
    ("show", "required: name"),
    ("show digit", "'digits'"),
    ("show ''", "no task, algorithm, solver or cohort ''"),
    ("show {text.txt}:x", "no task"),
    ("show {own.py}:tsk", "own.py has no task, algorithm, solver or cohort rule 'tsk'.*'task'"),
    ("show {own.py}:number", "own.py: number is of type int, not a Task, nor"),
    ("describe {own.py}:tsk", "own.py has no task 'tsk'.*'task'"),
    ("describe {own.py}:number", "own.py: number is of type int, not a Task. Known: bad, empty"),
    ("show {own.py}", "no task"),
    ("show nowhere.py:task", "no file .*nowhere.py"),
    ("show {raises.py}:task", "raises.py, line 2: RuntimeError: first second"),
    ("show {exits.py}:task", "exits.py, line 2: this ends the program"),
    ("run {own.py}:ends --rounds 1", "own.py, line 11: this ends the program"),
    ("show {syntax.py}:task", "syntax.py, line 1: "),
    ("show {imports.py}:task", "imports.py, line 1: .*no_such_module"),
    ("describe", "required: name"),
    ("describe digitz", "'digits'"),
    ("describe digits --seed x", "--seed.*'x'"),
    ("describe digits --seed -1", "seed must be an integer from 0"),
    ("describe digits --seed 1.5", "--seed.*'1.5'"),
    ("describe digits --seed 99999999999", "seed must be an integer from 0"),
    ("describe digits --picture {text.txt}", "--picture"),
    ("describe digits --picture x.gif", "--picture must be .*png"),
    ("describe quadratics --picture x.png", "--picture: .*no examples"),
    ("describe {own.py}:bad", "own.py, line 7: KeyError: .*no such column"),
    ("describe {own.py}:empty", "has data but no model"),
    ("describe {own.py}:wrong", "data must be FederatedData"),
    ("download", "required: name"),
    ("download mnits", "'mnist'"),
    ("download ''", "no download ''"),
    ("completion", "required: shell"),
    ("completion fishh", "'fishh'"),
    # One's own, by name.
    ("run digits --algorithm {kinds.py}:Mne", "kinds.py has no algorithm 'Mne'. Did you mean 'Mine'?"),
    ("run digits --algorithm {kinds.py}:", "kinds.py has no algorithm ''"),
    ("run digits --algorithm {kinds.py}:FedAvg", "kinds.py has no algorithm 'FedAvg'"),
    ("run digits --algorithm {kinds.py}", "no algorithm '.*kinds.py'"),
    ("run digits --algorithm nowhere.py:Mine", "no file .*nowhere.py"),
    ("run digits --algorithm {directory}.py:Mine", "no file .*directory.py"),
    ("run digits --algorithm {kinds.py}:Steps", r"Steps is the class Steps\(GD\), not a subclass of Algorithm that is"),
    ("run digits --algorithm {kinds.py}:wide", "wide is a function, not a subclass of Algorithm"),
    ("run digits --algorithm {kinds.py}:scalar", "scalar is of type Metric, not a subclass of Algorithm"),
    ("run digits --algorithm {kinds.py}:Undecorated", "Undecorated is not made with frozen; write @fedloom.frozen"),
    ("run digits --algorithm {kinds.py}:Dataclass", "Dataclass is not made with frozen; write @fedloom.frozen"),
    (
        "run digits --algorithm {kinds.py}:Bare",
        r"Bare is the class Bare\(Round\), not a subclass of Algorithm that is m",
    ),
    ("run digits --algorithm {kinds.py}:Abstract", "algorithm: Can't instantiate abstract class Abstract"),
    ("run digits --algorithm {kinds.py}:Mine --algorithm.lrr 1", "kinds.py:Mine has no field 'lrr'.*'lr'"),
    ("run digits --algorithm {kinds.py}:Mine --algorithm.lr -1", "Mine: lr must be a positive number, got -1"),
    ("run digits --algorithm {kinds.py}:Fails --rounds 1", "kinds.py, line 16: KeyError: 'lost'"),
    ("run digits --algorithm {kinds.py}:Grows", "Exchange 'train' of Grows.* turns the server's state from "),
    ("run digits --solver {kinds.py}:Stuck", "kinds.py, line 59: AttributeError: .*'velocity'"),
    ("run digits --cohort {kinds.py}:Nobody", "kinds.py, line 63: RuntimeError: nobody is there"),
    ("run digits --algorithm {raises.py}:Mine", "raises.py, line 2: RuntimeError: first second"),
    ("run digits --algorithm {exits.py}:Mine", "exits.py, line 2: this ends the program"),
    ("run digits --algorithm {syntax.py}:Mine", "syntax.py, line 1: SyntaxError"),
    ("run digits --algorithm {imports.py}:Mine", "imports.py, line 1: .*no_such_module"),
    ("run digits --algorithm {binary.py}:Mine", "binary.py is not a Python file: "),
    ("run digits --algorithm {text.txt}:Mine", "no algorithm '.*text.txt:Mine'"),
    ("compare digits --algorithms fedavg,{kinds.py}:Mne", "no algorithm 'Mne'"),
    ("compare digits --algorithms {kinds.py}:Mine,{kinds.py}:Mine", "'Mine' and the seed 0"),
    (
        "run digits --solver {kinds.py}:Mine",
        r"Mine is the class Mine\(FedAvg\), not a subclass of Solver .*Known: Steps, Stuck",
    ),
    ("run digits --solver {kinds.py}:Step", "no solver 'Step'. Did you mean 'Steps'?"),
    ("run digits --solver {kinds.py}:Steps --solver.steps 0", "steps must be a positive integer"),
    ("run digits --cohort {kinds.py}:Mine", "not a subclass of CohortRule that is made with frozen. Known: Nobody"),
    ("run digits --cohort stragglers --cohort.of {kinds.py}:Mine", "not a subclass of CohortRule"),
    ("run digits --algorithm feddr --algorithm.g {kinds.py}:Mine", "g must be"),
    ("run digits --model {kinds.py}:Mine", r"Mine is the class Mine\(FedAvg\), not a Model or a function"),
    ("run digits --model {kinds.py}:wdie", "no model 'wdie'. Did you mean 'wide'?"),
    ("run digits --model {kinds.py}:none", "kinds.py:none must return a Model, but returns None"),
    ("run digits --model {kinds.py}:wide", "kinds.py:wide needs width; give a function without arguments"),
    ("run digits --model {kinds.py}:flat", r"model: it does not fit task 'digits': .*\(3,\) numbers per example"),
    ("run digits --model {kinds.py}:fails", "kinds.py, line 41: OSError: .*the weights"),
    ("run digits --model {kinds.py}:broken", "kinds.py, line 42: KeyError: 'b'"),
    ("run quadratics --model {kinds.py}:flat", "model, loss, metrics and weights: task 'quadratics' is given by"),
    ("run digits --loss {kinds.py}:men", "no loss 'men'. Did you mean 'mean'?"),
    ("run digits --loss {kinds.py}:scalar", "scalar is of type Metric, not a function"),
    (
        "run digits --loss {kinds.py}:mean",
        "loss: it does not fit task 'digits': loss must return one number for each row",
    ),
    ("run digits --loss {kinds.py}:lost", "kinds.py, line 46: KeyError: 'lost'"),
    ("run digits --loss {kinds.py}:three", "loss: it does not fit task 'digits': three.. missing 1 required"),
    ("run digits --loss squared_error", "loss: it does not fit task 'digits': "),
    ("run digits --loss crossentropy", "loss: there is no 'crossentropy'. Did you mean 'cross_entropy'?"),
    ("run digits --loss 3", "loss must be a name from `fedloom list losses` or FILE.py:NAME"),
    ("run quadratics --loss squared_error", "model, loss, metrics and weights: task 'quadratics'"),
    ("run digits --metrics {kinds.py}:mean", "mean is a function, not a Metric. Known: accuracy, .*scalar"),
    ("run digits --metrics {kinds.py}:scalr", "no metric 'scalr'. Did you mean 'scalar'?"),
    ("run digits --metrics {kinds.py}:scalar", "metrics: it does not fit task 'digits': Metric 'scalar' must give"),
    ("run digits --metrics {kinds.py}:accuracy", "every metric needs a different name, got loss, accuracy, accuracy"),
    ("run digits --metrics {kinds.py}:raises", "kinds.py, line 51: "),
    ("run digits --metrics accurate", "metrics: there is no 'accurate'. Did you mean 'accuracy'?"),
    ("run digits --metrics mse,", "metrics must be a list"),
    ("run digits --metrics 3", "metrics must be a list"),
    ("run quadratics --metrics mse", "model, loss, metrics and weights: task 'quadratics'"),
    ("run {mine.toml}", "mine.toml: .*kinds.py has no algorithm 'Mne'"),
    ("check", "required: NAME"),
    ("check fedavgg", "algorithm: there is no 'fedavgg'. Did you mean 'fedavg'?"),
    ("check {kinds.py}:Steps", "Steps is the class"),
    ("check {kinds.py}:Backwards", "Backwards.* fails 'optimum': "),
    ("check {kinds.py}:Fails", "kinds.py, line 16: KeyError: 'lost'"),
    ("check {kinds.py}:Asserts", "kinds.py, line 20: AssertionError: mine"),
    ("check fedavg --algorithm.lr -1", "lr must be a positive number"),
    ("check fedavg --algorithm.rate 1", "no field 'rate'"),
    ("check fedavg --solver.lr 1", "check has no option --solver.lr; it takes --algorithm.FIELD"),
    ("check fedavg --rounds 1", "check has no option --rounds"),
    ("show {kinds.py}:mean", "mean is a function, not a Task, nor a subclass of Algorithm, Solver or CohortRule"),
    ("extend {study} --algorithms +{kinds.py}:Mne", "no algorithm 'Mne'"),
    ("tune digits --algorithms {kinds.py}:Mne", "no algorithm 'Mne'"),
    ("sweep digits --over algorithm=fedavg,{kinds.py}:Mne", "no algorithm 'Mne'"),
    # compare
    ("compare digitz", "no task 'digitz'"),
    ("compare ''", "no task ''"),
    ("compare quadratics digits", "one task"),
    ("compare quadratics {good.toml}", "one task"),
    ("compare {directory}", "no task"),
    ("compare nowhere.toml", "nowhere.toml cannot be read: No such file"),
    ("compare {directory.toml}", "directory.toml cannot be read: Is a directory"),
    ("compare {good.toml} --algorithms feddyn", "--algorithms and --variant require a task"),
    ("compare {good.toml} --variant exact", "--algorithms and --variant require a task"),
    ("compare {good.toml} {good.toml}", "Two experiments have the name 'good' and the seed 0"),
    ("compare {bytes.toml}", "bytes.toml cannot be read"),
    ("compare {own.py}:tsk", "no task 'tsk'"),
    ("compare {own.py}:bad --algorithms fedavg", "own.py, line 7: KeyError"),
    ("compare {raises.py}:task", "raises.py, line 2: RuntimeError"),
    ("compare quadratics --algorithms fedynn", "no algorithm 'fedynn'"),
    ("compare quadratics --algorithms ,", "algorithms must name at least one"),
    ("compare quadratics --algorithms ''", "algorithms must name at least one"),
    ("compare quadratics --algorithms feddyn,feddyn", "'feddyn' and the seed 0"),
    ("compare quadratics --algorithms feddyn,,fedynn", "no algorithm 'fedynn'"),
    ("compare quadratics --seeds 0", "--seeds must be at least 1"),
    ("compare quadratics --seeds -1", "--seeds"),
    ("compare quadratics --seeds a", "--seeds must be a number"),
    ("compare quadratics --seeds 1.5", "--seeds must be a number"),
    ("compare quadratics --seeds nan", "--seeds must be a number"),
    ("compare quadratics --seeds ''", "--seeds must be a number"),
    ("compare quadratics --seeds ,", "--seeds must be a number"),
    ("compare quadratics --seeds 1,1", "--seeds lists 1 twice"),
    ("compare quadratics --seeds 1,-2", "seed must be an integer from 0"),
    ("compare quadratics --seeds 99999999999", "--seeds must be at most 10,000, got 99999999999"),
    ("compare quadratics --seeds 99999999998..99999999999", "--seeds must be at most 10,000"),
    ("compare quadratics --seeds 1,99999999999", "seed must be an integer from 0"),
    ("compare quadratics --seeds 5..3", "seeds must go from .*3..10; got '5..3'"),
    ("compare quadratics --seeds 3..", "seeds must go from"),
    ("compare quadratics --seeds ..3", "seeds must go from"),
    ("compare quadratics --seeds 1..3", "seeds must go from at least 2"),
    ("compare quadratics --seeds a..b", "seeds must go from"),
    ("compare quadratics --seeds 3..3", "seeds must go from"),
    ("compare quadratics --seeds 2..3..4", "seeds must go from"),
    ("compare quadratics --variant exakt", "no variant 'exakt'"),
    ("compare quadratics --target high", "--target must be a number"),
    ("compare quadratics --target 'train loss='", "--target must be a number"),
    ("compare quadratics --target ''", "--target must be a number"),
    ("compare quadratics --target 'tran loss=0.1'", "no metric 'tran loss'.*'train loss'"),
    ("compare quadratics --target 'test accuracy=0.9'", "no metric 'test accuracy'"),
    ("compare digits --target nan", "target: test accuracy must reach a finite number"),
    ("compare digits --target inf", "target: test accuracy must reach a finite number"),
    ("compare digits --target 'train loss=-inf'", "target: train loss must reach a finite number"),
    ("compare digits --algorithms fedavg --target 90", "between 0 and 1.*Did you mean 0.9"),
    ("compare digits --algorithms fedavg --target -0.5", "target: test accuracy is always between"),
    ("compare digits --algorithms fedavg --target 0.01", "target: test accuracy of the initial model"),
    ("compare digits --algorithms fedavg --target 'test loss=-1'", "test loss is always at least 0"),
    ("compare digits --budget 20MB", "budget: there is no cost '20MB'"),
    ("compare digits --budget mb=20", "budget: there is no cost 'mb'"),
    ("compare digits --budget bytes=20XB", "budget: write COST=AMOUNT"),
    ("compare digits --budget bytes=", "budget: write COST=AMOUNT"),
    ("compare digits --budget bytes=-3", "budget: write COST=AMOUNT"),
    ("compare digits --budget rounds=0", "budget: (write|the amount)"),
    ("compare digits --budget gradients=nan", "budget: write COST=AMOUNT"),
    ("compare digits --window 0", "window must be a positive integer"),
    ("compare digits --window five", "window must be a positive integer"),
    ("compare digits --window 2.5", "window must be a positive integer"),
    ("compare digits --crossing last", "crossing: there is no 'last'"),
    ("report {study} --budget euros=3", "budget: there is no cost 'euros'"),
    ("report {study} --crossing first,stay", "crossing: there is no"),
    ("compare quadratics --rounds many", "rounds must be an integer from 1 .*'many'"),
    ("compare quadratics --rounds 0", "rounds must be an integer from 1"),
    ("compare quadratics --rounds -3", "rounds"),
    ("compare quadratics --rounds 1.5", "rounds must be an integer from 1"),
    ("compare quadratics --rounds nan", "rounds must be an integer from 1"),
    ("compare quadratics --rounds 1e3", "rounds must be an integer from 1"),
    ("compare quadratics --rounds 99999999999", "rounds must be an integer from 1"),
    ("compare quadratics --rounds ''", "rounds must be an integer from 1"),
    ("compare quadratics --evaluate-every 0", "evaluate_every must be an integer from 1"),
    ("compare quadratics --evaluate-every x", "evaluate_every must be an integer from 1"),
    ("compare quadratics --solver sdg", "solver: there is no 'sdg'"),
    ("compare quadratics --solver 3", "solver must be"),
    ("compare quadratics --solver gd --solver.lr nan", "lr must be a positive number"),
    ("compare quadratics --solver gd --solver.lr 0", "lr must be a positive number"),
    ("compare quadratics --solver gd --solver.lr inf", "lr must be a positive number"),
    ("compare quadratics --solver gd --solver.rate 1", "no field 'rate'"),
    ("compare quadratics --solver.lr.x 1 --solver gd", "lr"),
    ("compare quadratics --cohort unifrom", "cohort: there is no 'unifrom'"),
    ("compare quadratics --cohort uniform", "FedPD needs every client"),
    ("compare quadratics --cohort uniform --cohort.m 0", "m must be a positive integer"),
    ("compare quadratics --cohort uniform --cohort.m 9999", "larger than the population"),
    ("compare quadratics --cohort bernoulli --cohort.q 2", "q must be a number in"),
    ("compare quadratics --model 2nn", "model, loss, metrics and weights: task 'quadratics' is given by functions"),
    ("compare digits --model 3nn", "model: there is no '3nn'"),
    ("compare digits --weights heavy", "weights must be"),
    ("compare quadratics --split iid", "split: .*no labels"),
    ("compare digits --split irid", "split: there is no split 'irid'"),
    ("compare digits --split dirichlet", "split: .*clients"),
    ("compare digits --split dirichlet --split.clients 0 --split.alpha 1", "clients must be"),
    ("compare digits --split dirichlet --split.clients 5 --split.alpha -1", "alpha must be"),
    ("compare digits --split dirichlet --split.clients 5 --split.alpha nan", "alpha must be"),
    ("compare digits --split.alpha 3", "split.alpha needs a split: give --split NAME, too"),
    ("compare digits --split iid --split.client 5", "no field 'client'"),
    ("compare quadratics --own-models maybe", "own_models must be"),
    ("compare quadratics --own-models true --algorithms feddr", "own_models: .*no examples"),
    ("compare quadratics --on-nonfinite ignore", "on_nonfinite must be"),
    ("compare quadratics --plan 0x2", "lanes must be a positive integer"),
    ("compare quadratics --plan wide", "plan must be LANES"),
    ("compare quadratics --engine fast", "engine must be"),
    ("compare quadratics --buffer 3", "buffer = 3 requires the asynchronous engine"),
    ("compare quadratics --engine events --buffer 0", "buffer must be an integer from 1"),
    ("compare quadratics --engine events --buffer 9999 --algorithms feddr", "buffer must be an integer from 1 to"),
    ("compare quadratics --engine events --algorithms feddane", "cannot run asynchronously"),
    ("compare quadratics --speeds fast", "speeds"),
    ("compare quadratics --speeds -1", "speeds"),
    ("compare quadratics --system.faults.lost 2", "lost must be"),
    ("compare quadratics --system.nothing 1", "no field 'nothing'"),
    ("compare quadratics --sink tensorbord", "'tensorboard'"),
    ("compare quadratics --sink ''", "sink"),
    ("compare quadratics --out {text.txt}", "not a directory"),
    ("compare quadratics --out {directory}", "not empty"),
    ("compare quadratics --out {study}", "already has a study.*fedloom extend"),
    ("compare quadratics --out /dev/null/x", "cannot be written to|Not a directory"),
    ("compare quadratics --out {long}", "too long"),
    ("compare digitz --dry-run", "no task 'digitz'"),
    ("compare quadratics --dry-run --rounds 0", "rounds must be"),
    ("compare quadratics --dry-run --target 'tran loss=0.1'", "no metric 'tran loss'"),
    ("compare digits --algorithms fedavg --dry-run --target 90", "between 0 and 1"),
    ("compare quadratics --dry-run --budget euros=3", "budget: there is no cost 'euros'"),
    ("compare quadratics --dry-run --window 0", "window must be a positive integer"),
    ("compare quadratics --out ''", "--out must be a directory"),
    # run
    ("run", "required: TASK"),
    ("run quadratix", "no task 'quadratix'"),
    ("run quadratics --algorithm fedynn", "no algorithm 'fedynn'"),
    ("run quadratics --algorithm.alpa 1", "no field 'alpa'"),
    ("run quadratics --algorithm feddyn --algorithm.alpha -1", "alpha must be a positive number"),
    ("run quadratics --algorithm feddyn --algorithm.alpha nan", "alpha must be a positive number"),
    ("run quadratics --algorithm feddr --algorithm.g l3", "g"),
    ("run quadratics --algorithm fedpd --cohort uniform --cohort.m 2", "FedPD needs every client"),
    ("run quadratics --algorithm adaalter --solver gd", "needs a solver that offers accumulator"),
    ("run quadratics --seed -1", "seed must be an integer from 0"),
    ("run quadratics --seed a", "--seed.*'a'"),
    ("run quadratics --seeds 3", "no option --seeds"),
    ("run quadratics --out {run}", "already has a run.*fedloom extend"),
    ("run quadratics --variant x", "no variant 'x'"),
    ("run {empty.toml}", "empty.toml: An experiment needs a task"),
    ("run {syntax.toml}", "syntax.toml is not a TOML file"),
    ("run {twice.toml}", "twice.toml is not a TOML file"),
    ("run {field.toml}", "field.toml: .*no field 'round'"),
    ("run {type.toml}", "type.toml: .*rounds must be"),
    ("run {float.toml}", "float.toml: .*rounds must be"),
    ("run {negative.toml}", "negative.toml: .*rounds must be"),
    ("run {nan.toml}", "nan.toml: .*alpha must be"),
    ("run {inf.toml}", "inf.toml: .*alpha must be"),
    ("run {algorithm.toml}", "algorithm.toml: .*'fedynn'"),
    ("run {table.toml}", "table.toml: .*alpha must be"),
    ("run {number.toml}", "number.toml: .*algorithm must be"),
    ("run {nameless.toml}", "nameless.toml: .*'sdg'"),
    ("run {task.toml}", "task.toml: .*task must be"),
    ("run {date.toml}", "date.toml: .*rounds must be"),
    ("run {unknown.toml}", "unknown.toml: .*'quadratix'"),
    ("run {bytes.toml}", "bytes.toml cannot be read"),
    ("run {good.toml} --rounds x", "rounds must be"),
    ("run {good.toml} --variant exact", "--variant requires a task"),
    # sweep
    ("sweep quadratics", "nothing to sweep"),
    ("sweep quadratics --over", "--over: expected one argument"),
    ("sweep quadratics --over solver.lr", "over: write FIELD=VALUE"),
    ("sweep quadratics --over =1,2", "over: write FIELD=VALUE"),
    ("sweep quadratics --over solver.lr=", "over: write FIELD=VALUE"),
    ("sweep quadratics --algorithm feddyn --over algorithm.alpa=1,2", "no field 'alpa'"),
    ("sweep quadratics --algorithm feddyn --over algorithm.alpha=1,1", "lists 1 twice"),
    ("sweep quadratics --algorithm feddyn --over algorithm.alpha=1,nan", "alpha must be"),
    ("sweep quadratics --algorithm feddyn --over algorithm.alpha=0.1..1", "only random search"),
    ("sweep quadratics --algorithm feddyn --over algorithm.alpha=1..0.1 --random 3", "range must go from"),
    ("sweep quadratics --algorithm feddyn --over algorithm.alpha=0..1 --random 3", "range must go from"),
    ("sweep quadratics --algorithm feddyn --over algorithm.alpha=1,2 --random 0", "random must be a positive integer"),
    ("sweep quadratics --algorithm feddyn --over algorithm.alpha=1,2 --random x", "--random.*'x'"),
    ("sweep quadratics --algorithm feddyn --over algorithm.alpha=1,2 --random 9", "only 2 distinct points"),
    (
        "sweep quadratics --algorithm feddyn --over algorithm.alpha=1,2 --random 100000000000000000000",
        "only 2 distinct",
    ),
    (
        "sweep quadratics --algorithm feddyn --over algorithm.alpha=1..9 --random 100000000000000000000",
        "only 9 distinct",
    ),
    ("sweep quadratics --over solver.lr=1,2 --over solver.lr=3,4", "over: solver.lr is given twice"),
    ("sweep quadratics --algorithm feddyn --over algorithm.alpha=1,2 --select ''", "select must name a metric"),
    ("sweep quadratics --algorithm feddyn --over algorithm.alpha=1,2 --select 'tran loss'", "no metric 'tran loss'"),
    ("sweep quadratics --algorithm feddyn --over algorithm.alpha=1,2 --last 0", "last must be a positive integer"),
    ("sweep quadratics --over seed=1..3 --random 2", "seed needs a list"),
    ("sweep quadratics --preset fedoptt", "'fedopt'"),
    ("sweep quadratics --over rounds=0,1", "rounds must be"),
    ("sweep quadratics --over algorithm.alpha=1,2 --out {run}", "not empty"),
    # tune
    ("tune digits --algorithms fedavg --select accuracy", "no metric 'accuracy'.* Did you mean 'validation accuracy'"),
    ("tune digits --algorithms fedavg --select ''", "select must name a metric"),
    ("tune quadratics --select accuracy", "no metric 'accuracy'. Known: train loss.$"),
    # reproduce
    ("reproduce", "Which experiment is to be repeated.*`fedloom reproduce --list`"),
    ("reproduce --recorded", "Which experiment is to be repeated"),
    ("reproduce feddane-figure --recorded", "no experiment 'feddane-figure'"),
    ("reproduce feddane-figure", "no experiment 'feddane-figure'"),
    ("reproduce feddane-figure1 --seeds 0", "--seeds must be at least 1"),
    ("reproduce feddane-figure1 --seeds x", "--seeds must be a number"),
    ("reproduce feddane-figure1 --rounds 0", "rounds must be a positive integer"),
    ("reproduce feddane-figure1 --rounds x", "--rounds.*'x'"),
    ("reproduce feddane-figure1 --algorithms x", "no option --algorithms"),
    # resume, extend and report
    ("resume", "required: DIR"),
    ("resume nowhere", "no directory nowhere"),
    ("resume {directory}", "not the directory of a study"),
    ("resume {text.txt}", "no directory"),
    ("resume {long}", "too long"),
    ("resume {study} --again feddyn/seed-9", "again: .*no run 'feddyn/seed-9'.*feddyn/seed-0"),
    ("resume {study} --again feddyn/seed-0 --again feddyn/seed-9", "again: .*no run 'feddyn/seed-9'"),
    ("resume {tuning} --again fedavg/seed-0", "`fedloom resume .*tuning/comparison --again fedavg/seed-0`"),
    ("resume {sweep} --sink tensorboard", "--sink: .*sweep"),
    ("resume {run} --again feddyn/seed-0", "--again names a run of a study"),
    ("resume {study} --rounds 9", "no option --rounds.*`fedloom extend` adds"),
    ("resume {cut}", "log.jsonl has fewer rows.*again in another directory"),
    ("extend {cut} --rounds 9", "log.jsonl has fewer rows"),
    ("resume {broken}", "study.json is damaged"),
    ("resume {study} --sink x", "sink"),
    ("extend", "required: DIR"),
    ("extend nowhere --seeds 3", "no directory nowhere"),
    ("extend {directory} --seeds 3", "not the directory of a study"),
    ("extend {study}", "nothing to add: give seeds, algorithms or rounds"),
    ("extend {study} --seeds 1", "already has 2 seeds, among them 1"),
    ("extend {study} --seeds 2", "nothing to add"),
    ("extend {study} --seeds 99999999999", "--seeds must be at most 10,000"),
    ("extend {study} --seeds x", "--seeds must be a number"),
    ("extend {study} --seeds 0,0", "--seeds lists 0 twice"),
    ("extend {study} --seeds 0,1,-1", "seed must be an integer"),
    ("extend {study} --rounds 1", "already has 2 rounds, more than 1"),
    ("extend {study} --rounds 0", "rounds must be a positive integer"),
    ("extend {study} --rounds -1", "--rounds"),
    ("extend {study} --rounds x", "--rounds must be a positive integer, got 'x'"),
    ("extend {study} --rounds 99999999999", "rounds must be an integer from 1"),
    ("extend {study} --algorithms +fedynn", "no algorithm 'fedynn'"),
    ("extend {study} --algorithms +", "--algorithms must be a list"),
    ("extend {study} --algorithms ''", "--algorithms must be a list"),
    ("extend {study} --algorithms +feddyn", "nothing to add"),
    ("extend {run} --seeds 3", "single run"),
    ("extend {run} --rounds 2", "nothing to add"),
    ("extend {tuning} --seeds 3", "is a tuning.*`fedloom extend .*tuning/comparison`"),
    ("extend {run} --rounds 1", "already has 2 rounds"),
    ("extend {sweep} --seeds 3", "is a sweep, which cannot be extended"),
    ("extend {broken} --seeds 3", "study.json is damaged"),
    ("report", "required: DIR"),
    ("report nowhere", "no directory nowhere"),
    ("report {directory}", "no run in"),
    ("report {text.txt}", "no directory"),
    ("report {broken}", "study.json is damaged"),
    ("report {run} --target x", "--target must be a number"),
    ("report {run} --target 'tran loss=1'", "no metric 'tran loss'"),
    ("report {run} --out {text.txt}", "Not a directory|not a directory|exists"),
    ("report {run} --out ''", "--out must be a directory"),
    ("report {long}", "too long"),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Files and directories that the command lines mention, by name."""
    folder = tmp_path_factory.mktemp("world")
    for name, content in FILES.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (folder / "mine.toml").write_text(f'task = "digits"\nalgorithm = "{folder}/kinds.py:Mne"')
    (folder / "directory").mkdir()
    (folder / "directory/thesis.tex").write_text("mine")
    (folder / "directory.toml").mkdir()
    e = experiment("quadratics", "feddyn", rounds=2)
    compare("quadratics", ["feddyn"], seeds=[0, 1], rounds=2, directory=folder / "study")
    run(e, folder / "run")
    run(e, folder / "cut")
    (folder / "cut/log.jsonl").write_bytes(b"")
    sweep(e, {"algorithm.alpha": [0.5, 1.0]}, directory=folder / "sweep")
    (folder / "tuning").mkdir()
    (folder / "tuning/tuning.json").write_text("{}")
    (folder / "broken").mkdir()
    (folder / "broken/study.json").write_text('{"title": ')
    return folder


def listing(folder):
    """All files and directories, and when files were written; locks come and go."""
    found = [p for p in folder.rglob("*") if p.name != "lock" and "__pycache__" not in p.parts]
    return {p: p.stat().st_mtime_ns if p.is_file() else None for p in found}


@pytest.mark.parametrize(("line", "pattern"), WRONG, ids=[line or "nothing" for line, _ in WRONG])
def test_a_mistake_is_answered_with_one_sentence(capsys, tmp_path, world, line, pattern):
    before = listing(world)
    long = "x" * 5000
    filled = re.sub(r"\{([a-z.]+)\}", lambda found: long if found[1] == "long" else str(world / found[1]), line)
    code = cli.main(shlex.split(filled))
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert re.fullmatch(r"fedloom: [^\n]+\n", err), err
    assert re.search(pattern, err), err
    assert len(err) < 2000 + 5000 * ("{long}" in line)
    assert not list(tmp_path.iterdir())
    assert listing(world) == before


def test_there_are_enough_of_them():
    assert len(WRONG) >= 210
    assert len({line for line, _ in WRONG}) == len(WRONG)
