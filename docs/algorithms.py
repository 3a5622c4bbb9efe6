"""Writes docs/algorithms.md from the registry: `make docs`."""

import dataclasses
import pathlib
import sys

import fedloom as fl


def page() -> str:
    lines = [
        "# Algorithms",
        "",
        "This page is written by `make docs` from the registry. `fedloom.make(name, ...)` makes an algorithm by name.",
        "",
        "The limits are those with default options, on problems where clients differ.",
        "",
        "| name | class | limit with everyone | limit with partial cohorts | client remembers |",
        "|---|---|---|---|---|",
    ]
    for name, cls in fl.ALGORITHMS.items():
        memory = "yes" if cls.init_client is not fl.Algorithm.init_client else "nothing"
        limit = "the optimum" if cls.exact else "off by O(client step)"
        partial = "the optimum" if cls.invariant is not fl.Algorithm.invariant else "that, and the cohorts' noise"
        partial = "not allowed" if cls.needs_everyone else partial
        lines.append(f"| [`{name}`](#{name}) | `{cls.__name__}` | {limit} | {partial} | {memory} |")
    for name, cls in fl.ALGORITHMS.items():
        lines += ["", f"## {name}", "", "| hyperparameter | default | must be | |", "|---|---|---|---|"]
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]
            default = "`optax.sgd(1.0)`" if field.name == "optimizer" else f"`{field.default!r}`"
            values = field.metadata["domain"].words
            if field.metadata.get("per_client"):
                values += ", or an array with one entry for each client"
            lines.append(f"| `{field.name}` | {default} | {values} | {field.metadata['doc']} |")
        lines += ["", "```text", (sys.modules[cls.__module__].__doc__ or "").strip(), "```"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    pathlib.Path(__file__).with_suffix(".md").write_text(page())
