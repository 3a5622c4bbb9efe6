"""Record what directories of `fedloom reproduce` say, for docs and for later versions to be compared with.

python -m benchmarks.record DIRECTORY ...

Writes benchmarks/reproductions/NAME.json for each; only finished runs count. Recorded seeds that the directory does not
have stay. The processor is that of the machine that records, which should be the one that ran.
"""

import argparse
import datetime
import pathlib

from benchmarks.speed.load import processor
from fedloom.experiments.study import read_study
from fedloom.reproductions import of_study
from fedloom.reproductions.merging import together
from fedloom.reproductions.recording import file_name, from_json, record

PLACE = pathlib.Path(__file__).parent / "reproductions"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directories", nargs="+", metavar="DIRECTORY")
    parser.add_argument("--commit", help="that made the runs, if the directory does not say")
    given = parser.parse_args()
    for directory in given.directories:
        study = read_study(directory)
        reproduction = of_study(study)
        if not (finished := [r for r in study.results if r.finished]):
            raise SystemExit(f"{directory}: no run has finished, so there is nothing to record.")
        made = {
            "commit": study.about.get("commit") or given.commit,
            "date": datetime.date.fromtimestamp(
                max(p.stat().st_mtime for p in pathlib.Path(directory).rglob("log*"))
            ).isoformat(),
            "processor": processor(),
            "versions": finished[0].about["versions"],
        }
        if made["commit"] is None:
            raise SystemExit(f"{directory} does not say which commit made it; give it with --commit.")
        found = record(study, reproduction, made)
        path = PLACE / file_name(reproduction.name)
        if path.exists():
            old = from_json(path.read_text(), reproduction)
            if old.values:
                try:
                    found = together(old, found)
                except ValueError as error:
                    raise SystemExit(f"{error} {path} stays as it is.") from error
        path.parent.mkdir(exist_ok=True)
        path.write_text(found.to_json(reproduction))
        print(f"{path}: {path.stat().st_size / 1000:.1f} kB, {len(found.values)} figures, seeds {found.seeds}")


if __name__ == "__main__":
    main()
