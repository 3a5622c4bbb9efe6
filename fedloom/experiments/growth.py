"""Studies that grow: more seeds, methods or rounds, with the logs of a study that was made so at once.

The file study.json is replaced first, in one step; what it then says is run as if the study were resumed. So a kill at
any moment leaves a study that `fedloom resume`, or the same command again, completes.
"""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fedloom.algorithm import Algorithm
from fedloom.evidence.groups import by_task
from fedloom.evidence.verdicts import separated, verdict
from fedloom.experiments.about import other_versions, packages, versions, with_commit
from fedloom.experiments.arguments import Names, Seeds, name_list, reporter, seed_list
from fedloom.experiments.definition import Experiment
from fedloom.experiments.files import Damaged, only_one
from fedloom.experiments.looking import is_seen, looked, seeds_of
from fedloom.experiments.own_files import path_of, references_in
from fedloom.experiments.recipe import from_recipe, method_names
from fedloom.experiments.result import Result
from fedloom.experiments.run_directory import (
    ABOUT,
    CONFIG,
    LOG,
    is_over,
    lengthen,
    read_config,
    read_json,
    read_rows,
)
from fedloom.experiments.running import check_start
from fedloom.experiments.runs import check_files
from fedloom.experiments.side_by_side import run_side_by_side
from fedloom.experiments.study import OpenSink, Progress, RunEach, Study, read_study, resume_alone, resume_runs, run_all
from fedloom.experiments.study_file import (
    STUDY,
    Runs,
    listed,
    listed_experiment,
    places,
    read_study_file,
    write_study_file,
)
from fedloom.experiments.used_files import digests, files_of, refuse_changed
from fedloom.hyperparameters import count


def extend(
    directory: str | os.PathLike[str],
    *,
    seeds: Seeds | None = None,
    algorithms: Names = (),
    rounds: int | None = None,
    progress: Progress | bool | None = None,
    sinks: Sequence[OpenSink] = (),
    each: RunEach | None = None,
) -> Study:
    """Add seeds, methods or rounds to a study, or rounds to a single run, and run what is new.

    The logs are those of a study that was made so at once, byte for byte. Whatever is not mentioned stays as it is,
    `evaluate_every` too.

    Args:
        directory: that of the study or of the run.
        seeds: how many there are to be in total, from 0 on, or all of them as a list; none can be taken away.
        algorithms: methods to add to a comparison, by name, also as "feddyn,feddr", or as algorithms.
        rounds: how many every run is to have in total.
        progress: True for a bar in a notebook or at a terminal, or a progress reporter.
        sinks: destinations for the rows, besides the logs.
        each: how the runs of a study are run, if not one after the other: `spread_alone` on a cluster.
    """
    progress = reporter(progress)
    path, added = pathlib.Path(directory), name_list(algorithms)
    if isinstance(seeds, str):
        seeds = seed_list(seeds)
    if seeds is None and rounds is None and not added:
        raise ValueError("There is nothing to add: give seeds, algorithms or rounds.")
    if rounds is not None and not count.holds(rounds):
        raise ValueError(f"rounds must be {count.words}, got {rounds!r}.")
    if not (path / STUDY).exists() and (path / CONFIG).exists():
        if seeds is not None or added:
            raise ValueError(
                f"{path} is a single run, which can only get more rounds; use `fedloom compare` for several seeds or "
                "methods."
            )
        assert rounds is not None
        if (own := read_config(path)).rounds == rounds and is_over(path, own):
            raise ValueError(f"{path} already has all of this: there is nothing to add.")
        return _extend_run(path, rounds, progress, sinks)
    plain = read_study_file(path)
    _check_kind(path, plain["about"], rounds is not None, bool(added))
    with only_one(path):
        if _grow(path, plain, seeds, added, rounds):
            write_study_file(path, plain)
        elif _is_complete(read_study(path)):
            raise ValueError(f"{path} already has all of this: there is nothing to add.")
    return resume_study(path, None, progress, sinks, each)


def resume_study(
    directory: str | os.PathLike[str],
    experiments: Mapping[str, Experiment] | None = None,
    progress: Progress | None = None,
    sinks: Sequence[OpenSink] = (),
    each: RunEach | None = None,
) -> Study:
    """Run what is left of a study.

    Args:
        directory: that of the study.
        experiments: by the directories of their runs; needed only for tasks that are neither registered nor in a file.
        progress: a progress reporter.
        sinks: destinations for the rows, besides the logs.
        each: as `extend` has it.
    """
    kind = read_study_file(pathlib.Path(directory))["about"].get("kind")
    if each is None and kind == "reproduction":
        each = run_side_by_side  # as it was begun
    return decided(resume_runs(directory, experiments, progress, sinks, each), progress, sinks, each)


def _extend_run(path: pathlib.Path, rounds: int, progress: Progress | None, sinks: Sequence[OpenSink]) -> Study:
    old = read_config(path)
    study = path.resolve().parent.parent
    if (study / STUDY).exists() and path.resolve() in [study / run["run"] for run in read_study_file(study)["runs"]]:
        raise ValueError(f"{path} is a run of the study {study}; extend the study, so that all its runs stay alike.")
    _check_rounds(str(path), old, rounds)
    if rounds > old.rounds:
        longer = dataclasses.replace(old, rounds=rounds)
        check_files(path)
        _check_versions([path], packages(longer.check()))
        lengthen(path, longer)
    return resume_alone(path, progress, sinks)


def _check_kind(path: pathlib.Path, about: Mapping[str, Any], rounds: bool, algorithms: bool) -> None:
    kind = about.get("kind")
    if kind == "sweep":
        raise ValueError(
            f"{path} is a sweep, which cannot be extended: its points ran side by side, and rounding depends on how "
            "many do. Start another sweep, or compare the best points with `fedloom compare`."
        )
    if kind == "reproduction" and (rounds or algorithms):
        raise ValueError(
            f"{path} is a reproduction: methods and rounds are the paper's, so only seeds can be added to it."
        )
    if algorithms and "recipe" not in about:
        why = about.get("no recipe", "it was not made by a comparison of this version of FedLoom")
        raise ValueError(f"{path}: no methods can be added to it, because {why}. Seeds and rounds can.")


def _grow(
    path: pathlib.Path,
    plain: dict[str, Any],
    seeds: int | Sequence[int] | None,
    added: Sequence[str | Algorithm],
    rounds: int | None,
) -> bool:
    """Put what is new into the table of the study, after all checks. Return False if there is nothing new."""
    old: dict[tuple[str, int], Experiment] = {}
    words: dict[str, str] = {}  # the directory of each method
    for run in plain["runs"]:
        e = listed_experiment(path, run)
        old[run["name"], e.seed] = e
        words[run["name"]] = run["run"].rpartition("/")[0]
        if rounds is not None:
            _check_rounds(f"{run['name']}, seed {e.seed},", e, rounds)
    about = with_commit(plain["about"])
    if rounds is not None and "recipe" in about:
        about["recipe"] = {**about["recipe"], "rounds": rounds}
    present = list(dict.fromkeys(seed for _, seed in old))
    chosen = _chosen_seeds(seeds, present)
    by_name: dict[str, Experiment] = {name: e for (name, _), e in reversed(old.items())}
    recorded = plain.get("files", {})
    if added:
        refuse_changed(recorded, map(path_of, references_in(about["recipe"])))
    for name, algorithm in zip(method_names(added, by_name), added, strict=True):
        by_name.setdefault(name, from_recipe(about["recipe"], algorithm))
    order = [name for name in dict.fromkeys(name for name, _ in old)]
    order += [name for name in by_name if name not in order]
    new: list[tuple[str, Experiment]] = []
    for name in order:
        own = [seed for method, seed in old if method == name] or present
        for seed in own if seeds is None else chosen:
            e = old.get((name, seed)) or dataclasses.replace(by_name[name], seed=seed)
            new.append((name, e if rounds is None else dataclasses.replace(e, rounds=rounds)))
    texts = {key: e.to_toml() for key, e in old.items()}
    changed = [e for name, e in new if texts.get((name, e.seed)) != e.to_toml()]
    if not changed:
        return False
    _check_versions([path / run["run"] for run in plain["runs"]])
    refuse_changed(recorded, [file for e in changed for file in files_of(e)])
    _check_data([path / run["run"] for run in plain["runs"]], list(old.values()))
    for i, e in enumerate(changed):
        checked = e.check()
        if i == 0:  # what the model needs here may be what it did not have before: kernels
            _check_versions([path / run["run"] for run in plain["runs"]], packages(checked))
    if "looks" not in about and about.get("kind") == "comparison" and all(r.finished for r in read_study(path).results):
        about["looks"] = [len(present)]  # of a study that did not count them
    plain |= {"about": about, "runs": listed(new, places(new, words)), "files": digests(changed) | recorded}
    return True


def _is_complete(study: Study) -> bool:
    """Has nothing been left by a kill? A damaged run stays as it is."""
    over = [r.damaged or (r.finished and r.directory and is_over(r.directory, r.experiment)) for r in study.results]
    return all(over) and is_seen(study)


def _check_rounds(whose: str, experiment: Experiment, rounds: int) -> None:
    if rounds < experiment.rounds:
        raise ValueError(
            f"rounds: {whose} already has {experiment.rounds} rounds, more than {rounds}; none is removed."
        )


def _chosen_seeds(seeds: int | Sequence[int] | None, present: Sequence[int]) -> list[int]:
    """All seeds that the study is to have."""
    if seeds is None:
        return list(present)
    if isinstance(seeds, str) or (isinstance(seeds, int) and not count.holds(seeds)):
        raise ValueError(f"seeds must be a number of seeds or a list of seeds, got {seeds!r}.")
    chosen = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"seeds lists {next(s for s in chosen if chosen.count(s) > 1)} twice.")
    if missing := [seed for seed in present if seed not in chosen]:
        raise ValueError(
            f"seeds: the study already has {len(present)} seeds, among them {missing[0]}; seeds cannot be "
            "removed, so list all that it is to have."
        )
    return chosen


def _check_versions(runs: Sequence[pathlib.Path], needed: Iterable[str] = ()) -> None:
    """What is added must be made with the versions of what is there, also of what is needed now and was not then."""
    for path in runs:
        try:
            old = read_json(path / ABOUT, "versions")["versions"] if (path / ABOUT).exists() else {}
        except Damaged:  # which the others do not have to wait for
            continue
        if old and (other := other_versions(old, versions(old.keys() - {"fedloom", "python"} | set(needed)))):
            raise ValueError(
                f"{path} was run with {', '.join(other)}, and another version may not give the same bits. Install the "
                "same versions to extend it, or start again in another directory."
            )


def _check_data(runs: Sequence[pathlib.Path], experiments: Sequence[Experiment]) -> None:
    """What is added must have the data of what is there; one run that has begun stands for the others."""
    for path, experiment in zip(runs, experiments, strict=True):
        if not experiment.lost and (path / LOG).exists() and (rows := read_rows(path)):
            check_start(path, rows[0], experiment.check())
            return


# How often results were seen, and growth until they decide.


def decided(
    study: Study, progress: Progress | None = None, sinks: Sequence[OpenSink] = (), each: RunEach | None = None
) -> Study:
    """Look at the results; if looks were planned, add seeds until one method is separated or the limit is reached."""
    study = looked(study)
    if "planned" not in study.about or not all(r.finished for r in study.results):
        return study
    say: Callable[[str], None] = (lambda words: None) if progress is None else progress.say
    while True:
        seeds = seeds_of(study)
        later = [n for n in study.about["planned"] if n > len(seeds)]
        if separated(study):
            say(f"{len(seeds)} seeds: one method is separated from all others.")
            return study
        tied = _tied(study)
        if not later:
            say(f"{len(seeds)} seeds: {tied} still tied; this is the limit.")
            return study
        say(f"{len(seeds)} seeds: {tied} still tied; adding {_seeds_words(later[0] - len(seeds))}.")
        more = [seed for seed in range(later[0]) if seed not in seeds][: later[0] - len(seeds)]
        study = looked(_with_seeds(study, [*seeds, *more], progress, sinks, each))


def _seeds_words(n: int) -> str:
    return "1 seed" if n == 1 else f"{n} seeds"


def _tied(study: Study) -> str:
    """Who is tied, and the verb."""
    verdicts = [verdict(study, task) for task in by_task(study)]
    names = list(dict.fromkeys(name for found in verdicts if not found.separated for name in found.tied))
    return f"{', '.join(names)} are" if len(names) > 1 else "the methods are"


def _with_seeds(
    study: Study,
    seeds: Sequence[int],
    progress: Progress | None,
    sinks: Sequence[OpenSink],
    each: RunEach | None = None,
) -> Study:
    if study.directory is not None:
        path, plain = study.directory, read_study_file(study.directory)
        with only_one(path):
            _grow(path, plain, seeds, (), None)
            write_study_file(path, plain)
        return resume_runs(path, None, progress, sinks, each)
    own: dict[str, list[Result]] = {}
    for result in study.results:
        own.setdefault(result.name, []).append(result)
    runs: Runs = [
        (name, dataclasses.replace(results[0].experiment, seed=seed))
        for name, results in own.items()
        for seed in seeds
        if seed not in [r.experiment.seed for r in results]
    ]
    for result in run_all(runs, progress=progress, sinks=sinks).results:
        own[result.name].append(result)
    return dataclasses.replace(study, results=[r for results in own.values() for r in results])
