"""A process whose children resume a run, count what they do to its files, and kill themselves at a given moment.

Each line of the standard input is such a moment: what is about to happen, to which file, and for which time. The answer
is "killed" or, if the child reached the end of the run, the moments that it passed. Children are forked, which saves
them the imports; that is safe because JAX starts no threads before it is used.

With a second argument, children extend a study instead: it says what they add, in JSON. At a moment that begins with
"resume: " they resume it.
"""

import builtins
import collections
import io
import json
import os
import pathlib
import signal
import stat
import sys

from fedloom.experiments import extend, resume, resume_study

DIRECTORY = pathlib.Path((sys.argv[1:] or ["nowhere"])[0])  # it may be imported
open_file, fsync, replace = open, os.fsync, os.replace
last = ""  # the moment to die at
passed: collections.Counter[str] = collections.Counter()
names: dict[int, str] = {}  # of open files, by their descriptors


def about_to(moment):
    passed[moment] += 1
    if f"{moment} {passed[moment]}" == last:
        os.kill(os.getpid(), signal.SIGKILL)


def is_ours(path):
    return isinstance(path, str | os.PathLike) and DIRECTORY in pathlib.Path(path).parents


def name_of(path):
    return str(pathlib.Path(path).relative_to(DIRECTORY))


class Counted:
    """A file that is written in two halves, so that a kill between them leaves it torn."""

    def __init__(self, file, name):
        self.file, self.name = file, name
        names[file.fileno()] = name

    def write(self, content):
        about_to(f"write {self.name}")
        half = len(content) // 2
        self.file.write(content[:half])
        self.file.flush()
        about_to(f"finish {self.name}")
        self.file.write(content[half:])

    def truncate(self, size):
        about_to(f"truncate {self.name}")
        self.file.truncate(size)

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()


def counted_open(path, mode="r", *more, **options):
    file = open_file(path, mode, *more, **options)
    return Counted(file, name_of(path)) if is_ours(path) and set(mode) & set("wax+") else file


def counted_fsync(file):
    about_to("fsync " + ("directory" if stat.S_ISDIR(os.fstat(file).st_mode) else names[file]))
    fsync(file)


def counted_replace(old, new):
    if is_ours(new):
        about_to(f"replace {name_of(new)}")
    replace(old, new)


def go_on(resumed):
    if len(sys.argv) == 2:
        resume(DIRECTORY, watch=[lambda row: about_to("continue after a row")], checkpoint_seconds=0)
    elif resumed:
        resume_study(DIRECTORY)
    else:
        extend(DIRECTORY, **json.loads(sys.argv[2]))


if __name__ == "__main__":  # pytest imports it too, to look for doctests
    for last in map(str.strip, sys.stdin):
        resumed, last = last.startswith("resume: "), last.removeprefix("resume: ")
        child = os.fork()
        if child == 0:
            builtins.open = io.open = counted_open
            os.fsync, os.replace = counted_fsync, counted_replace
            go_on(resumed)
            print(*passed, sep=", ", flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            print("killed", flush=True)
        elif status != 0:
            sys.exit(f"The child that was to be killed at {last!r} failed.")
