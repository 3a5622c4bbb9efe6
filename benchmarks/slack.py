"""How far practice is from theory, one table for all methods: python -m benchmarks.slack

For each theorem: the longest step that it allows on small quadratics, the longest that does not diverge, their ratio.
"""

import jax

from fedloom.theory import THEOREMS
from fedloom.theory.slack import MOST, table


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
