"""What is on each page of the API reference."""

from typing import NamedTuple


class Part(NamedTuple):
    """A page: its title, what it is about, and the modules (with all their public names) or single names on it."""

    title: str
    about: str
    entries: tuple[str, ...]


def _within(package: str, names: str) -> tuple[str, ...]:
    return tuple(f"{package}.{name}" for name in names.split())


PARTS = {
    "core": Part(
        "Core",
        "What an algorithm is made of. [Concepts](../concepts.md) explains how the pieces fit together.",
        (
            *_within("fedloom", "Problem Solution Algorithm Round Exchange Cohort Client Server Federation Objective"),
            *_within("fedloom", "Solver client.StepSolver Coupled frozen hyper static optimizer"),
            *_within("fedloom.hyperparameters", "Domain interval choice optional"),
        ),
    ),
    "algorithms": Part(
        "Algorithms",
        "Papers, pseudo-code and departures are on the page [Algorithms](../algorithms.md).",
        ("fedloom.algorithms",),
    ),
    "cohorts": Part("Cohorts", "Who takes part in a round.", ("fedloom.cohorts",)),
    "solvers": Part("Solvers", "How a client minimises its local problem.", ("fedloom.solvers",)),
    "regularizers": Part("Regularizers", "Convex functions with a proximal operator.", ("fedloom.regularizers",)),
    "schedules": Part("Schedules", "Step sizes that depend on the round.", ("fedloom.schedules",)),
    "data": Part(
        "Data",
        "Federated data, splits and sources. The guide is [Tasks and data](../data.md).",
        (
            *("fedloom.data", "fedloom.data.splits"),
            *_within("fedloom.data.sources", "digits.digits mnist.mnist emnist.emnist emnist.emnist_l cifar.cifar10"),
            *_within("fedloom.data.sources", "cifar.cifar100 heart.heart_disease leaf.leaf sent140.sent140"),
            *_within("fedloom.data.sources", "tff.tff_emnist tff.tff_cifar100 huggingface.huggingface"),
            *_within("fedloom.data.sources.shakespeare", "shakespeare_leaf shakespeare_leaf_files shakespeare_tff"),
            *_within("fedloom.data.sources.stackoverflow", "stackoverflow_nwp stackoverflow_tags"),
        ),
    ),
    "tables": Part("Tables", "The guide is [Tables](../tables.md).", ("fedloom.tables",)),
    "models": Part("Models", "The guide is [Models and metrics](../models.md).", ("fedloom.models",)),
    "metrics": Part("Metrics", "The guide is [Models and metrics](../models.md).", ("fedloom.metrics",)),
    "systems": Part(
        "Systems",
        "Clients on a simulated clock. The guide is [Asynchrony and unreliable clients](../systems.md).",
        ("fedloom.systems", *_within("fedloom.systems", "compute network availability faults")),
    ),
    "theory": Part("Theory", "The guide is [Theory](../theory.md).", ("fedloom.theory", "fedloom.diagnosis")),
    "engines": Part(
        "Engines",
        "Functions that run an algorithm. The guide is [Engines](../engines.md).",
        (
            *("fedloom.engines", "fedloom.cluster", "fedloom.federation"),
            *("fedloom.engines.plan.Plan", "fedloom.engines.grid.simulate_grid"),
        ),
    ),
    "experiments": Part(
        "Experiments",
        "The guides are [Experiments](../experiments.md), [Sweeps](../sweeps.md) and [Tuning](../tuning.md).",
        ("fedloom.experiments", "fedloom.experiments.presets.preset"),
    ),
    "evidence": Part("Evidence", "The guide is [What a comparison can say](../evidence.md).", ("fedloom.evidence",)),
    "report": Part("Report", "The guide is [Reports](../reports.md).", ("fedloom.report",)),
    "sinks": Part("Sinks", "The guide is [Sinks](../sinks.md).", ("fedloom.sinks",)),
    "testing": Part("Testing", "The guide is [The battery](../testing.md).", ("fedloom.testing",)),
    "tasks": Part("Tasks", "All tasks are listed on the page [Tasks](../tasks.md).", ("fedloom.tasks",)),
    "reproductions": Part(
        "Reproductions", "All are listed on the page [Reproductions](../reproductions.md).", ("fedloom.reproductions",)
    ),
}
