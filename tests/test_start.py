"""A command starts quickly: what it must not import or compile, counted, and what is shown first."""

import io
import os
import pathlib
import subprocess
import sys

import fedloom as fl
from fedloom import cli

# Each takes a tenth of a second to import, or much more, and most commands use none of them.
HEAVY = ("matplotlib", "pandas", "plotly", "rich", "scipy.optimize", "scipy.special", "scipy.stats", "torch")
HEAVY += ("fedloom.report", "fedloom.reproductions")

# Prints how many programs were wanted, and how many were found in the cache.
COUNTED = """
import sys, jax, fedloom as fl
from fedloom import cli
count = []
jax.monitoring.register_event_listener(lambda event, **_: count.append(event.rpartition("/")[2]))
cli.use_machine()
fl.run(fl.experiment("digits", "fedavg", rounds=2), sys.argv[1])
print(count.count("compile_requests_use_cache"), count.count("cache_hits"))
"""


def _python(program: str, *arguments: str, **variables: str) -> str:
    place = str(pathlib.Path(fl.__file__).parents[1])
    usual = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=usual | {"PYTHONPATH": place} | variables,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_command_imports_nothing_heavy_before_it_is_needed():
    found = _python(f"import sys, fedloom.cli; print(*(name for name in {HEAVY} if name in sys.modules))")
    assert found.split() == []


def test_a_second_run_compiles_nothing(tmp_path):
    counts = []
    for i in range(2):
        out = _python(COUNTED, str(tmp_path / f"{i}"), XDG_CACHE_HOME=str(tmp_path / "cache"))
        counts.append([int(n) for n in out.splitlines()[-1].split()])
    assert counts[0][0] > counts[0][1]
    assert counts[1][0] == counts[1][1] > 0


def _run(directory: pathlib.Path) -> int:
    return cli.main(
        ["run", "quadratics", "--algorithm", "fedprox", "--rounds", "3", "--quiet", "--out", str(directory)]
    )


def test_the_table_is_printed_before_the_report_is_written(tmp_path, monkeypatch, capsys):
    printed, write = [], fl.report.write

    def noting(study, directory):
        printed.append(capsys.readouterr().out)
        return write(study, directory)

    monkeypatch.setattr(fl.report, "write", noting)
    assert _run(tmp_path / "run") == 0
    assert "fedprox" in printed[0]
    assert capsys.readouterr().out == f"\nreport: {tmp_path / 'run' / 'report.html'}\n"


def test_the_report_is_written_even_if_nobody_reads_the_table(tmp_path, monkeypatch, capsys):
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

        def fileno(self) -> int:  # there is no file to close
            raise OSError

    monkeypatch.setattr(sys, "stdout", Closed())
    assert _run(tmp_path / "run") == 0
    assert capsys.readouterr().err == ""
    assert (tmp_path / "run" / "report.html").exists()
