"""Does FedAvg learn on each task with its paper's settings? Real data, real sizes; minutes, not seconds.

    FEDLOOM_DATA=... python benchmarks/learn.py [mnist heart shakespeare shakespeare-leaf synthetic] [--rounds N]

MNIST: rounds to 95% test accuracy, beside table 2 of the linear-speedup paper (3 to 17 rounds). Heart disease: accuracy
in every hospital beside that of always naming its more frequent class. The others: loss and accuracy.
"""

import argparse
import time

import numpy as np

import fedloom as fl
from fedloom.tasks import TASKS, Loaded


def run(loaded: Loaded, setting: fl.tasks.Setting, rounds: int) -> "fl.Record":
    *_, record = fl.simulate(
        setting.algorithm, loaded.federation, setting.solver, loaded.w, rounds, cohort=setting.cohort, chunk=1
    )
    return record


MNIST = (  # task, variant
    ("mnist-lr-digits10", "n=10"),
    ("mnist-2nn-digits10", "n=10"),
    ("mnist-2nn-digits10", "n=10, batch 10"),
    ("mnist-2nn-digits2", "n=10"),
    ("mnist-2nn-digits2", "n=10, batch 10"),
    ("mnist-cnn-digits10", "n=10"),
    ("mnist-cnn-digits2", "n=10"),
    ("mnist-2nn-digits2", "n=100, batch 10"),
)


def mnist(rounds: int) -> None:
    print(f"MNIST, FedAvg: rounds to 95% test accuracy, at most {rounds}, and the published number")
    for name, variant in MNIST:
        loaded = fl.load(name)
        setting = loaded.setting("fedavg", variant)
        published = [r.values["fedavg"] for r in TASKS[name].reported if r.variant == variant.split(",")[0]]
        start, best, reached = time.perf_counter(), 0.0, "not reached"
        for record in fl.simulate(
            setting.algorithm, loaded.federation, setting.solver, loaded.w, rounds, cohort=setting.cohort
        ):
            best = max(best, loaded.scores(record.w)["accuracy"])
            if best >= 0.95:
                reached = f"{record.round} rounds"
                break
        took = time.perf_counter() - start
        print(
            f"  {name:<18} {variant:<15} {reached:<12} published {published[0]:g}, best {best:.1%}, {took:.0f} s",
            flush=True,
        )


def heart(rounds: int) -> None:
    print("Heart disease, FedAvg, 5 splits: accuracy, that of the more frequent class, and balanced accuracy")
    gains = []
    for seed in range(5):
        loaded = fl.load("heart", seed=seed)
        record = run(loaded, loaded.setting("fedavg"), rounds)
        assert loaded.task.model is not None
        assert loaded.data is not None
        model, params = loaded.task.model, loaded.task.model.unravel(record.w)
        parts = (("train", loaded.data.train, loaded.data.split), ("test", loaded.data.test, loaded.data.test_split))
        for part, (x, y), split in parts:
            assert split is not None
            assert split.names is not None
            right, labels = np.argmax(model.apply(params, x, None), axis=1) == np.asarray(y), np.asarray(y)
            cells = []
            for k, name in enumerate(split.names):
                ok, own = right[split.rows(k)], labels[split.rows(k)]
                majority = max(own.mean(), 1 - own.mean())
                balanced = np.mean([ok[own == c].mean() for c in np.unique(own)])
                cells.append(f"{name} {ok.mean():.1%} / {majority:.1%} / {balanced:.1%}")
                gains.append((part, name, ok.mean() - majority))
            print(f"  seed {seed} {part:<5}  " + "   ".join(cells), flush=True)
    for part in ("train", "test"):
        means = {n: np.mean([g for p, m, g in gains if (p, m) == (part, n)]) for p, n, _ in gains if p == part}
        print(
            f"  mean gain over the more frequent class, {part}: " + ", ".join(f"{n} {g:+.1%}" for n, g in means.items())
        )


def losses(names: list[str], rounds: int) -> None:
    for name in names:
        loaded = fl.load(name)
        setting = loaded.setting("fedavg")
        print(f"{name}, FedAvg: loss and accuracy on the test set")
        start, values = time.perf_counter(), loaded.scores(loaded.w)
        print(f"  round   0  {values['loss']:.4f}  {values['accuracy']:.2%}", flush=True)
        for record in fl.simulate(
            setting.algorithm, loaded.federation, setting.solver, loaded.w, rounds, cohort=setting.cohort
        ):
            if record.round in (1, 2, 5) or record.round % 10 == 0 or record.round == rounds:
                values = loaded.scores(record.w)
                took = time.perf_counter() - start
                print(
                    f"  round {record.round:>3}  {values['loss']:.4f}  {values['accuracy']:.2%}  {took:.0f} s",
                    flush=True,
                )


PARTS = {
    "mnist": lambda rounds: mnist(rounds or 60),
    "heart": lambda rounds: heart(rounds or 200),
    "shakespeare": lambda rounds: losses(["shakespeare-roles"], rounds or 20),
    "shakespeare-leaf": lambda rounds: losses(["shakespeare-leaf"], rounds or 5),  # minutes for a round
    "synthetic": lambda rounds: losses([n for n in TASKS if "synthetic" in n or n == "digits"], rounds or 50),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "parts", nargs="*", choices=[*PARTS, []], default=list(PARTS), metavar="part", help=", ".join(PARTS)
    )
    parser.add_argument("--rounds", type=int, default=None, help="instead of each part's own number")
    given = parser.parse_args()
    for part in given.parts:
        if part not in PARTS:
            parser.error(f"there is no part {part!r}; there are {', '.join(PARTS)}.")
    for part in given.parts:
        PARTS[part](given.rounds)


if __name__ == "__main__":
    main()
