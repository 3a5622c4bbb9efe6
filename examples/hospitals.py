"""Heart disease in four hospitals: from a CSV file to predictions.

    python examples/hospitals.py                  # all of it in Python
    python examples/hospitals.py patients.csv     # only writes the table, for the command line

The hospitals' files are read from FEDLOOM_DATA (`fedloom download heart_disease`); without them patients are made up.
"""

import csv
import pathlib
import sys
import tempfile

import jax.numpy as jnp
import numpy as np

import fedloom as fl
from fedloom.data.files import locate
from fedloom.data.sources.heart import COLUMNS, HOSPITALS


def patients() -> list[list[str]]:
    """The columns of the files and the hospital; what is not known is a question mark."""
    try:
        files = {hospital: locate(f"heart_disease/processed.{hospital}.data") for hospital in HOSPITALS}
        return [[*row, name] for name, path in files.items() for row in csv.reader(path.read_text().split())]
    except FileNotFoundError:
        rng = np.random.default_rng(0)
        values = rng.normal(size=(400, 13)).round(2)
        grade = (values[:, 0] + values[:, 7] > 0).astype(int) * rng.integers(1, 5, 400)
        known = np.where(rng.random((400, 13)) < 0.1, "?", values.astype(str))
        return [[*row, str(g), str(rng.choice(HOSPITALS))] for row, g in zip(known, grade, strict=True)]


def write(path: pathlib.Path) -> None:
    """A row for each patient: what was measured, the hospital, and whether there is a disease."""
    with path.open("x", newline="") as file:
        table = csv.writer(file)
        table.writerow([*list(COLUMNS)[:-1], "hospital", "disease"])  # the last column is its grade
        table.writerows([*row[:-2], row[-1], "no" if row[-2] == "0" else "yes"] for row in patients())


def main(rounds: int = 40, seeds: int = 3) -> None:
    """Compare methods on all hospitals, and predict with one of them."""
    folder = pathlib.Path(tempfile.mkdtemp())
    write(folder / "patients.csv")
    task = fl.tables.from_file(folder / "patients.csv", label="disease", client="hospital")
    print(task.about)
    study = fl.compare(task, "fedavg,scaffold,feddyn", rounds=rounds, seeds=seeds)
    print(fl.report.text(study))

    result = next(r for r in study.results if r.name == "scaffold")
    loaded = result.experiment.load()
    assert loaded.data is not None
    assert result.w is not None
    print("\n".join(f"note: {note}" for note in fl.tables.notes(loaded.data)))
    print("test accuracy of each hospital:", loaded.by_client(jnp.asarray(result.w))["accuracy"].values.round(3))

    new = fl.tables.read(folder / "patients.csv")  # in earnest a file of new patients, without the label
    fl.tables.write(result.model.columns(new), folder / "predictions.csv")
    print("predictions:", folder / "predictions.csv")
    print("model:", result.save(folder / "model.safetensors"))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write(pathlib.Path(sys.argv[1]))
    else:
        main()
