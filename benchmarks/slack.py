"""How far practice is from theory, one table for all methods: python -m benchmarks.slack

For each theorem: the longest step that it allows on small quadratics, the longest that does not diverge, their ratio.
"""

import os

# Many small programs, each run for a moment: XLA's older code generator without optimization compiles them faster.
FLAGS = (
    "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
)
os.environ.setdefault("XLA_FLAGS", FLAGS)

import jax  # noqa: E402 (XLA reads its flags first)

from fedloom.diagnosis.slack import MOST, table  # noqa: E402
from fedloom.theory import THEOREMS  # noqa: E402


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    print("| theorem | losses | cohorts | step | allowed | longest | slack |")
    print("|---|---|---|---|---|---|---|")
    for row in table(THEOREMS):
        found = row.slack
        end = [f"{found.largest:.3g}", f"{found.ratio:.3g}"] if found.ratio < MOST else ["none found", f"> {MOST:g}"]
        name = THEOREMS[row.theorem].name
        print(f"| {name} | {row.losses} | {row.cohort} | {found.name} | {found.allowed:.3g} | {end[0]} | {end[1]} |")


if __name__ == "__main__":
    main()
