"""The gallery and the live report: small real runs, made when the site is built by the code that the pages show."""

import pathlib
from typing import Any, NamedTuple

import fedloom as fl


class Exhibit(NamedTuple):
    """A question, the code that draws the answer as `figure`, and what to see in it."""

    question: str
    code: str
    picture: str
    alt: str
    caption: str


EXHIBITS = (
    Exhibit(
        "How do methods learn?",
        """
methods = ["fedavg", "fedadam", "scaffold", "feddyn"]
study = fl.compare("digits", methods, rounds=60, seeds=[0, 1, 2])
figure = fl.report.curves(study, "test accuracy")
""",
        "curves.png",
        "Test accuracy against rounds, with bands over three seeds",
        "The line is the mean over three seeds, and the band is the 95% interval of that mean.",
    ),
    Exhibit(
        "Which is the best, and is that more than luck?",
        """
from fedloom.report import forest

figure = forest.forest_figure(*forest.differences(study, "digits"))
""",
        "forest.png",
        "The difference of each method to the best, with intervals",
        "At equal bytes, with paired seeds. With three seeds hardly anything can be told apart: "
        "[What a comparison can say](evidence.md).",
    ),
    Exhibit(
        "What do they cost?",
        """
figure = fl.report.curves(study, "test accuracy", x="bytes")
""",
        "bytes.png",
        "Test accuracy against bytes sent",
        "SCAFFOLD sends a control variate along with each model, which stretches its curve.",
    ),
    Exhibit(
        "How do the clients differ?",
        """
figure = fl.report.split_picture(study.results[0].about)
""",
        "split.png",
        "The number of examples of each client, by label",
        "Labels are distributed by a Dirichlet(0.3) prior for each client: [Tasks and data](data.md).",
    ),
    Exhibit(
        "What if the server does not wait?",
        """
system = {"system.speeds": 4.0}  # the fastest client is four times as fast as the slowest
synchronous = fl.experiment("digits", "feddr", rounds=40, **system)
waiting_for_nobody = {"engine": "events", "rounds": 600, "evaluate_every": 15}
asynchronous = fl.experiment("digits", "feddr", **waiting_for_nobody, **system)
both = fl.experiments.run_all([("FedDR", synchronous), ("asyncFedDR", asynchronous)])
figure = fl.report.curves(both, "test accuracy", x="clock")
""",
        "clock.png",
        "Test accuracy against simulated time, with and without waiting",
        "A synchronous round takes as long as its slowest client. asyncFedDR updates the model at every reply: "
        "[Asynchrony and unreliable clients](systems.md).",
    ),
    Exhibit(
        "Which step sizes?",
        """
base = fl.experiment("digits", "fedadam", rounds=20, validation=0.2)
over = {"solver.lr": [0.03, 0.1, 0.3, 1.0], "algorithm.lr": [0.003, 0.01, 0.03, 0.1]}
grid = fl.sweep(base, over, select=fl.experiments.Select("validation accuracy", last=5))
xs, ys, scores = fl.experiments.heat_map(grid, x="solver.lr", y="algorithm.lr")
labels = ("client step size", "server step size", "validation accuracy")
figure = fl.report.heat_map(xs, ys, scores, *labels)
""",
        "heat-map.png",
        "FedAdam's validation accuracy over the step sizes of clients and server",
        "All sixteen runs are one compiled program: [Sweeps](sweeps.md).",
    ),
)

GALLERY = """# Gallery

The figures on this page show real runs. They were drawn by the code beside them when the site was built.
"""

REPORT = """# A live report

This is the file that `fedloom compare` writes, for four methods, three seeds and 60 rounds. Choose another metric or
axis, smooth the curves, click a name to colour its curve, click a column to sort a table.

[Open it in full](live-report/report.html){ .md-button }

<iframe src="live-report/report.html" title="A report" class="report" loading="lazy"></iframe>

The same table on a terminal:
"""


def pages(folder: pathlib.Path) -> dict[str, str]:
    """Both pages as Markdown, by name. Their figures and the report are written into `folder`."""
    (folder / "gallery").mkdir(parents=True)
    names: dict[str, Any] = {"fl": fl}
    text = GALLERY
    for exhibit in EXHIBITS:
        exec(exhibit.code, names)
        names["figure"].savefig(folder / "gallery" / exhibit.picture, dpi=144)
        text += (
            f"\n## {exhibit.question}\n\n```python\n{exhibit.code.strip()}\n```\n\n"
            f"![{exhibit.alt}](gallery/{exhibit.picture})\n\n{exhibit.caption}\n"
        )
    fl.report.write(names["study"], folder / "live-report")
    return {"gallery.md": text, "report.md": f"{REPORT}\n```text\n{fl.report.text(names['study'])}\n```\n"}
