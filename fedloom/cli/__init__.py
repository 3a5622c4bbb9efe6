"""The command `fedloom`: which federated method should I use on my task, and what does it cost?

Exit codes: 0 done, 1 stopped by the machine (a full disk, say), 2 bad input, 3 every run diverged, 130 interrupted.
"""

import argparse
import os
import sys
from typing import Any, NoReturn

import jax

import fedloom
from fedloom.cli import experimenting, listing
from fedloom.cli.flags import nearest_option, take_dotted
from fedloom.cli.interruption import listen
from fedloom.cli.listing import LISTS as LISTS
from fedloom.engines.choose_plan import cache_directory
from fedloom.hyperparameters import nearest

MOST_DEVICES = 8  # of a CPU: each has a copy of the data

EPILOG = """\
first steps:
  fedloom compare                              methods on scikit-learn's digits: a table and a report
  fedloom list tasks                           what there is to run on
  fedloom compare synthetic-1-1 --rounds 50    the methods that a paper ran, for 50 rounds
  fedloom run digits --algorithm feddyn --algorithm.alpha 0.3 --solver.lr 0.1
  fedloom completion bash                      completion for your shell
"""


class Parser(argparse.ArgumentParser):
    """One that raises a sentence."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message.rstrip('.')}; see `{self.prog} --help`.")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise ValueError(f"There is no {value!r}.{nearest(str(value), action.choices)}")


def parser(complete: bool = False) -> argparse.ArgumentParser:
    """All commands. With `complete`, names are choices and every field is an option, for shell completion."""
    top = Parser(
        prog="fedloom",
        description="Federated optimization: run, compare and tune methods; see what they cost.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"fedloom {fedloom.__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="command")
    experimenting.add(commands, complete)
    listing.add(commands, complete)
    shell = commands.add_parser("completion", help="print a completion script for your shell")
    shell.add_argument("shell", choices=("bash", "zsh", "tcsh"), help='for bash: eval "$(fedloom completion bash)"')
    shell.set_defaults(do=_completion)
    return top


def _completion(given: argparse.Namespace) -> int:
    import shtab

    print(shtab.complete(parser(complete=True), given.shell))
    return 0


def command() -> None:
    """What the script `fedloom` calls."""
    use_machine()
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    if code == 130:
        os._exit(code)  # threads of an interrupted computation may still run, and crash while Python tears itself down
    sys.exit(code)


def use_machine() -> None:
    """All cores, each a device of JAX's; and compiled programs are kept, so that a second run starts quickly."""
    flags = os.environ.get("XLA_FLAGS", "")
    if "JAX_NUM_CPU_DEVICES" not in os.environ and "host_platform_device_count" not in flags:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        jax.config.update("jax_num_cpu_devices", min(cores, MOST_DEVICES))
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache_directory() / "programs"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)


def main(arguments: list[str] | None = None) -> int:
    """The command with the given arguments; returns the exit code."""
    try:
        listen()
        plain, dotted = take_dotted(sys.argv[1:] if arguments is None else arguments)
        given, rest = parser().parse_known_args(plain)
        unknown = rest or [f"--{name}" for name in dotted if not hasattr(given, "fields")]
        if unknown:
            raise ValueError(nearest_option(unknown[0], given))
        given.dotted = dotted
        return given.do(given)
    except BrokenPipeError:  # the reader, such as head, has seen enough
        sys.stderr.close()
        return 0
    except (ValueError, ImportError, FileNotFoundError) as error:
        print(f"fedloom: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"fedloom: {error}{experimenting.how_to_resume()}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\nfedloom: interrupted.{experimenting.how_to_resume()}", file=sys.stderr)
        return 130
