"""The commands that take a trained model away: export and predict."""

import argparse
import pathlib
import shlex
import sys
import warnings
from typing import Any

import numpy as np

from fedloom import tables
from fedloom.experiments.finding import find_runs
from fedloom.experiments.model_file import FORMATS
from fedloom.experiments.result import Result
from fedloom.experiments.trained import Trained, load_model
from fedloom.experiments.tuning import COMPARISON, TUNING
from fedloom.hyperparameters import nearest

EXPORT = """\
Write the model that a run trained to a file: its parameters by name and, for a table, how rows become inputs.

examples:
  fedloom export runs/run-digits-fedavg-1
  fedloom export runs/compare-patients-1 --algorithm scaffold --seed 2 --format npz --out model.npz
  fedloom export runs/compare-patients-1 --algorithm feddr --client cleveland
"""
PREDICT = """\
Predict with the model that a run trained, or with an exported one. FILE is a table with the columns that the model was
trained on (CSV, Parquet, NPZ, a Hugging Face folder); for a model of arrays it is an .npz file with the array x.

examples:
  fedloom predict runs/compare-patients-1 new.csv --algorithm scaffold
  fedloom predict model.safetensors new.parquet --out predictions.csv
"""


def add(commands: Any) -> None:
    """Add the commands of this module."""
    raw = argparse.RawDescriptionHelpFormatter
    e = commands.add_parser(
        "export", help="write a trained model to a file", description=EXPORT, formatter_class=raw, allow_abbrev=False
    )
    e.add_argument("directory", metavar="DIR", help="of a run or a study")
    e.add_argument("--format", choices=tuple(FORMATS), help=f"{', '.join(FORMATS)} (default: by --out, or safetensors)")
    e.add_argument("--out", metavar="FILE", help="a new file (default: model.safetensors in the run's directory)")
    e.set_defaults(do=_export)
    p = commands.add_parser(
        "predict", help="predict with a trained model", description=PREDICT, formatter_class=raw, allow_abbrev=False
    )
    p.add_argument("directory", metavar="DIR", help="of a run or a study, or the file of an exported model")
    p.add_argument("file", metavar="FILE", help="what to predict")
    p.add_argument("--out", metavar="FILE", help="a new .csv file (default: FILE's name with -predictions.csv)")
    p.set_defaults(do=_predict)
    for command in (e, p):
        command.add_argument("--algorithm", metavar="A", help="which method, if the directory has several")
        command.add_argument("--seed", type=int, metavar="N", help="which seed (default: the first)")
        command.add_argument("--client", metavar="K", help="a client's own model, which FedDR, FedPD and FedSplit keep")


def _export(given: argparse.Namespace) -> int:
    suffix = FORMATS[given.format] if given.format else ".safetensors"
    if given.out is not None and given.format and pathlib.Path(given.out).suffix != suffix:
        raise ValueError(
            f"--out: the name of a file in the format {given.format} ends with {suffix}; got {given.out!r}."
        )
    result = _result(given)
    name = "model" if given.client is None else f"model-{given.client}"
    assert result.directory is not None
    path = result.directory / f"{name}{suffix}" if given.out is None else pathlib.Path(given.out)
    model = _model(result, given.client)
    model.save(path)
    print(f"{path}: {model.model.name} of {_words(result, given.client)}, {model.w.size:,} parameters")
    return 0


def _predict(given: argparse.Namespace) -> int:
    source, file = pathlib.Path(given.directory), pathlib.Path(given.file)
    out = pathlib.Path(f"{file.name.split('.')[0]}-predictions.csv" if given.out is None else given.out)
    if out.exists():
        raise ValueError(f"--out: {out} already exists; choose another name.")
    if source.is_file():
        if given.algorithm or given.seed is not None or given.client:
            raise ValueError(f"--algorithm, --seed and --client choose among runs, but {source} is one model.")
        model = load_model(source)
    else:
        model = _model(_result(given), given.client)
    x = tables.read(file) if model.preparation is not None else _arrays(file)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = model.columns(x)
    for sentence in dict.fromkeys(str(w.message) for w in said if issubclass(w.category, UserWarning)):
        print(f"fedloom: {sentence}", file=sys.stderr)
    tables.write(found, out)
    print(f"{out}: predictions for {len(found['prediction']):,} rows")
    return 0


def _arrays(file: pathlib.Path) -> np.ndarray:
    """The inputs of a model that was not trained on a table."""
    if file.suffix != ".npz" or not file.is_file():
        raise ValueError(f"{file}: this model was trained on arrays; give an .npz file with an array x of inputs.")
    with np.load(file, allow_pickle=False) as arrays:
        if "x" not in arrays:
            raise ValueError(f"{file} has no array x; it has {', '.join(arrays.files) or 'none'}.")
        return arrays["x"]


def _result(given: argparse.Namespace) -> Result:
    """The run that is meant, among those of a directory."""
    path = pathlib.Path(given.directory)
    study = find_runs([path / COMPARISON if (path / TUNING).exists() else path])
    names = list(dict.fromkeys(r.name for r in study.results))
    if given.algorithm is not None and given.algorithm not in names:
        raise ValueError(f"--algorithm: {path} has no run of {given.algorithm!r}.{nearest(given.algorithm, names)}")
    if given.algorithm is None and len(names) > 1:
        raise ValueError(
            f"{path} has runs of {', '.join(names)}; say which, for example --algorithm {shlex.quote(names[0])}."
        )
    chosen = [r for r in study.results if r.name == (given.algorithm or names[0])]
    seeds = [r.experiment.seed for r in chosen]
    if given.seed is not None and given.seed not in seeds:
        raise ValueError(f"--seed: there is no run with seed {given.seed}; there are {', '.join(map(str, seeds))}.")
    return next(r for r in chosen if given.seed in (None, r.experiment.seed))


def _model(result: Result, client: str | None) -> Trained:
    return result.model if client is None else result.client_model(client)


def _words(result: Result, client: str | None) -> str:
    whose = "" if client is None else f", client {client}"
    return f"{result.name}, seed {result.experiment.seed}{whose}"
