"""The command `fedloom`: which federated method should I use on my task, and what does it cost?

Exit codes: 0 done, 1 failure of the machine (such as a full disk), 2 bad input, 3 every run diverged, 130 interrupted.
"""

import argparse
import contextlib
import errno
import gc
import os
import sys
import traceback
from typing import Any, NoReturn

import jax

from fedloom.cli import checking, diagnosing, experimenting, federating, growing, listing, suggesting, taking, tuning
from fedloom.cli.flags import nearest_option, take_dotted
from fedloom.cli.interruption import listen
from fedloom.cli.listing import LISTS as LISTS
from fedloom.cli.output import forget, how_to_resume
from fedloom.cli.processes import has_others, say, share_cores
from fedloom.engines.processes import ProcessEnded
from fedloom.experiments.own_files import own_words
from fedloom.hyperparameters import nearest
from fedloom.places import cache_directory
from fedloom.version import __version__

# Mistakes in a name, not failures of the machine.
BAD_NAMES = (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EEXIST)

EPILOG = """\
first steps:
  fedloom compare                              compare methods on small images of digits: a table and a report
  fedloom list tasks                           list the tasks
  fedloom compare synthetic-1-1 --rounds 50    compare the methods that a paper ran, for 50 rounds
  fedloom run digits --algorithm feddyn --algorithm.alpha 0.3 --solver.lr 0.1
  fedloom completion bash                      print a completion script for your shell
"""


class Parser(argparse.ArgumentParser):
    """A parser that raises a ValueError instead of printing its usage."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message.rstrip('.')}; see `{self.prog} --help`.")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise ValueError(f"There is no {value!r}.{nearest(str(value), action.choices)}")


def parser(complete: bool = False) -> argparse.ArgumentParser:
    """All commands. For shell completion, with `complete`, names are choices and every field is an option."""
    top = Parser(
        prog="fedloom",
        description="Federated optimization: run, compare and tune methods, and see what they cost.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"fedloom {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="command")
    experimenting.add(commands, complete)
    growing.add(commands)
    suggesting.add(commands, complete)
    tuning.add(commands, complete)
    taking.add(commands)
    checking.add(commands, complete)
    diagnosing.add(commands, complete)
    federating.add(commands, complete)
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
    """The entry point of the script `fedloom`."""
    use_machine()
    try:
        code = main()
    except Exception:
        if not has_others():
            raise
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    if code == 130 or (code and has_others()):
        # Threads of an interrupted computation may still run, and would crash while Python shuts down; and JAX would
        # wait for processes that are no more.
        os._exit(code)
    sys.exit(code)


def use_machine() -> None:
    """Make every core a device of JAX, and keep compiled programs, so that a second run starts quickly."""
    gc.freeze()  # what has been imported stays: a tenth of the time of a short run went into looking through it
    gc.set_threshold(50_000)
    share_cores()
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache_directory() / "programs"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # a start compiles many small programs


def main(arguments: list[str] | None = None) -> int:
    """Run the command with the given arguments, and return the exit code."""
    try:
        listen()
        forget()
        arguments = sys.argv[1:] if arguments is None else arguments
        plain, dotted = take_dotted(arguments)
        given, rest = parser().parse_known_args(plain)
        unknown = rest or [f"--{name}" for name in dotted if not hasattr(given, "fields")]
        if unknown:
            raise ValueError(nearest_option(unknown[0], given))
        given.dotted, given.arguments = dotted, arguments
        code: int = given.do(given)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader, such as `head`, has stopped reading
        _close_output()
        if not (hint := how_to_resume()):
            return 0
        print(f"fedloom: stopped, because nobody reads the output.{hint}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as error:
        say(f"interrupted.{how_to_resume()}", error)
        return 130
    except (Exception, SystemExit) as error:
        code, words = _explained(error)
        if not code:
            raise
        if isinstance(error, OSError) and error.filename is None:
            _close_output()
        say(" ".join(words.split()), error)
        return code


def _explained(error: Exception | SystemExit) -> tuple[int, str]:
    """The exit code and the message for an error; code 0 if the error is a fault of FedLoom's."""
    if words := own_words(error):
        return 2, words
    if isinstance(error, ProcessEnded):
        return 1, f"{error}{how_to_resume()}"
    if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
        where = "standard output" if error.filename is None else error.filename
        if error.errno in BAD_NAMES:
            return 2, f"{where!s:.100}: {error.strerror}."
        return 1, f"{where}: {error.strerror or error}.{how_to_resume()}"
    if isinstance(error, ValueError | ImportError | FileNotFoundError):
        return 2, str(error)
    return 0, ""


def _close_output() -> None:
    """Forget what could not be written to standard output, or Python fails when it writes it at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
