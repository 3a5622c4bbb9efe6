"""Heart disease in four hospitals: from a CSV file to predictions.

    python examples/hospitals.py

The hospitals' files are read from FEDLOOM_DATA (`fedloom download heart_disease`); without them patients are made up.
"""

import csv
import pathlib
import tempfile

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


def main(rounds: int = 40, seeds: int = 3) -> None:
    """Compare methods on all hospitals, train one of them, and predict."""
    folder = pathlib.Path(tempfile.mkdtemp())
    with (folder / "patients.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow([*COLUMNS, "hospital", "disease"])
        table.writerows([*row, "no" if row[-2] == "0" else "yes"] for row in patients())

    task = fl.tables.from_file(folder / "patients.csv", label="disease", client="hospital", leave_out="num")
    print(task.about)
    study = fl.compare(task, ["fedavg", "scaffold", "feddyn"], rounds=rounds, seeds=range(seeds))
    print(fl.report.text(study))

    loaded = task.load(seed=0)
    assert loaded.data is not None
    assert task.model is not None
    print("\n".join(f"note: {note}" for note in fl.tables.notes(loaded.data)))
    *_, last = fl.simulate(fl.Scaffold(), loaded.federation, fl.SGD(0.1, batch_size=10), loaded.w, rounds=rounds)
    accuracies = loaded.by_client(last.w)["accuracy"].values
    print("test accuracy:", dict(zip(sorted(HOSPITALS), accuracies.round(3).tolist(), strict=True)))

    new = fl.tables.read(folder / "patients.csv")  # in earnest a file of new patients, without the label
    x = loaded.data.preparation.features(new)
    predictions = loaded.data.preparation.predictions(task.model.apply(task.model.unravel(last.w), x, None))
    fl.tables.write(predictions, folder / "predictions.csv")
    print("predictions:", folder / "predictions.csv")


if __name__ == "__main__":
    main()
