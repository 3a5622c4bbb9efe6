"""Writes docs/tasks.md from the registry: `make docs`."""

import pathlib

from fedloom.tasks import feddr, feddyn, fedopt, fedprox, linear_speedup, more

PARTS = {
    "Ours": more,
    "FedProx and FedDANE": fedprox,
    "FedDR": feddr,
    "FedDyn": feddyn,
    "Linear speedup": linear_speedup,
    "FedOpt": fedopt,
}


def page() -> str:
    lines = [
        "# Tasks",
        "",
        "This page is written by `make docs` from the registry. `fedloom.load(name, seed=0)` loads a task.",
        "`fedloom show NAME` prints solver, cohort, rounds and hyperparameters by algorithm and variant, where they",
        "come from, the grids that they were tuned over, and what was reported. `fedloom describe NAME` describes the",
        "data. How to use tasks, get data, and bring your own: [data.md](data.md). Models and metrics:",
        "[models.md](models.md).",
    ]
    for title, module in PARTS.items():
        lines += ["", f"## {title}", "", "```text", (module.__doc__ or "").strip(), "```", ""]
        lines += ["| task | | model | data | variants |", "|---|---|---|---|---|"]
        for task in module.TASKS:
            model = "-" if task.model is None else f"{task.model.name}, {task.model.parameters:,}"
            needs = ", ".join(f"`{n}`" for n in task.needs) or "-"
            lines.append(f"| `{task.name}` | {task.about} | {model} | {needs} | {', '.join(task.settings)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    pathlib.Path(__file__).with_suffix(".md").write_text(page())
