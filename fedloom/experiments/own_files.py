"""One's own by name: FILE.py:NAME, a class, a function or a value in a Python file.

A process has one version of each file, as of a module that it imports. A file that has changed is read again when an
experiment is made by names or read from a directory, and never while one runs: so what runs is what a run records.
"""

import functools
import hashlib
import importlib.util
import inspect
import pathlib
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, ModuleType
from typing import Any, NamedTuple

from fedloom.hyperparameters import nearest

OWN_FILES: set[str] = set()  # that were loaded: an error in one of them is shown with its line there


class Kind(NamedTuple):
    """What a name may stand for."""

    word: str  # "algorithm"
    wanted: str  # "a subclass of Algorithm that is made with frozen"
    holds: Callable[[Any], bool]


class Version(NamedTuple):
    """A file as it was read."""

    source: bytes
    module: ModuleType


_versions: dict[str, Version] = {}  # by absolute path
_classes: dict[type, str] = {}  # the classes that were found, and their references


def is_reference(text: Any) -> bool:
    """Is it FILE.py:NAME?"""
    return isinstance(text, str) and text.rpartition(":")[0].endswith(".py")


def absolute(text: Any) -> Any:
    """FILE.py:NAME with the whole path, since a run may be resumed from another folder; anything else as it is."""
    if not is_reference(text):
        return text
    path, _, name = text.rpartition(":")
    return f"{pathlib.Path(path).resolve()}:{name}"


def path_of(reference: str) -> str:
    """The absolute path of FILE.py:NAME."""
    return absolute(reference).rpartition(":")[0]


def find(reference: str, kind: Kind, again: bool = True) -> Any:
    """What FILE.py:NAME stands for; unless `again`, as it was when the file was read."""
    path, _, name = absolute(reference).rpartition(":")
    if again:
        forget_changed(path)
    members = vars(_version(path).module)
    if name in members and kind.holds(members[name]):
        if isinstance(members[name], type):  # which may have several names there; the first one stands for it
            _classes[members[name]] = f"{path}:{next(n for n, value in members.items() if value is members[name])}"
        return members[name]
    known = [n for n, value in members.items() if not n.startswith("_") and _is_own(value, path) and kind.holds(value)]
    if name not in members:
        raise ValueError(f"{path} has no {kind.word} {name!r}.{nearest(name, known)}")
    raise ValueError(f"{path}: {name} is {_described(members[name])}, not {kind.wanted}.{nearest(name, known)}")


def _is_own(value: Any, path: str) -> bool:
    """Is it a value, or a class or function that the file defines itself? What it imports is nobody's typing error."""
    module = getattr(value, "__module__", None)
    return not (inspect.isclass(value) or inspect.isroutine(value)) or module == _versions[path].module.__name__


def _described(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}({', '.join(base.__name__ for base in value.__bases__)})"
    return "a function" if inspect.isroutine(value) else f"of type {type(value).__name__}"


def forget_changed(path: str) -> None:
    """Forget a file that has changed since it was read, so that it is read again."""
    if path in _versions and _content(path) != _versions[path].source:
        del _versions[path]


def digest(path: str) -> str | None:
    """The SHA-256 of a file, as it was read if it was; None if there is no such file."""
    content = _versions[path].source if path in _versions else _content(path)
    return None if content is None else hashlib.sha256(content).hexdigest()


def _content(path: str) -> bytes | None:
    file = pathlib.Path(path)
    return file.read_bytes() if file.is_file() else None


def _version(path: str) -> Version:
    if path not in _versions:
        content = _content(path)
        if content is None:
            raise ValueError(f"There is no file {path}.")
        _versions[path] = Version(content, _executed(path, content))
    return _versions[path]


@functools.cache  # a file that is put back has the classes that it had
def _executed(path: str, source: bytes) -> ModuleType:
    OWN_FILES.add(path)
    try:
        code = compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        if getattr(error, "filename", None) == path:  # it says where
            raise
        raise ValueError(f"{path} is not a Python file: {error}.") from error
    own = hashlib.sha256(path.encode() + source).hexdigest()[:12]  # files in two folders may have the same name
    spec = importlib.util.spec_from_file_location(re.sub(r"\W", "_", pathlib.Path(path).stem) + f"_{own}", path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    try:
        exec(code, vars(module))
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module


def reference_of(value: Any) -> str | None:
    """FILE.py:NAME of a value's class; None if it is not at the top of a Python file that can be loaded alone.

    The class may have been imported by Python itself. Its file must still be the one that it came from.
    """
    kind = type(value)
    path, _, name = _classes.get(kind, "").rpartition(":")
    if path in _versions and vars(_versions[path].module).get(name) is kind:
        return _classes[kind]
    module = sys.modules.get(kind.__module__)
    name = next((n for n, member in vars(module).items() if member is kind), "") if module else ""
    file = getattr(module, "__file__", None)
    if not module or not name or file is None or module.__name__ == "__main__" or "." in module.__name__:
        return None
    path = str(pathlib.Path(file).resolve())
    source = _versions[path].source if path in _versions else _content(path)
    if source is None or not _same_code(module, source):
        raise ValueError(f"{path} has changed since {name} was loaded from it; load it again.")
    return f"{path}:{name}"


def _same_code(module: ModuleType, source: bytes) -> bool:
    """Whether the functions and methods of an imported module are those of its file."""
    try:
        now = _codes(compile(source, str(module.__file__), "exec", dont_inherit=True))
    except (SyntaxError, ValueError):
        return False
    classes = [vars(value) for value in vars(module).values() if isinstance(value, type)]
    members = [member for table in (vars(module), *classes) for member in table.values()]
    codes = [getattr(getattr(member, "fget", member), "__code__", None) for member in members]
    return all(code in now for code in codes if code is not None and code.co_filename == module.__file__)


def _codes(code: CodeType) -> set[CodeType]:
    inner = (_codes(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return {code}.union(*inner)


@functools.cache  # one model for one function, so that compiled programs are shared
def called(function: Callable[[], Any]) -> Any:
    """What a function without arguments returns."""
    return function()


# How it is told.


def labels(references: Sequence[str], known: Mapping[str, str] = {}) -> dict[str, str]:
    """Short names: NAME, or as much of FILE.py:NAME as tells it apart from the others.

    Args:
        references: absolute ones.
        known: other names in use, and what they stand for; one that stands for a reference is its name.
    """
    found = {}
    for reference in references:
        names, others = _names(reference), [_names(other) for other in references if other != reference]
        free = (
            name
            for n, name in enumerate(names)
            if name not in known and name not in [other[n] for other in others if n < len(other)]
        )
        given = (name for name in names if known.get(name) == reference)
        found[reference] = next(given, None) or next(free, reference)
    return found


def _names(reference: str) -> list[str]:
    """Mine, mine.py:Mine, folder/mine.py:Mine, and so on."""
    path, _, name = reference.rpartition(":")
    parts = pathlib.Path(path).parts
    return [name, *(f"{pathlib.Path(*parts[-n:])}:{name}" for n in range(1, len(parts) + 1))]


def own_words(error: BaseException) -> str:
    """What an error says that comes from a file of the user's own, with its line there; empty if it does not."""
    place = _own_line(error)
    if not place:
        return "" if error.__cause__ is None else own_words(error.__cause__)
    if isinstance(error, SystemExit):
        return f"{place}: this ends the program (SystemExit); raise an error instead."
    return f"{place}: {error}" if isinstance(error, ValueError) else f"{place}: {type(error).__name__}: {error}"


def _own_line(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename in OWN_FILES:
        return f"{error.filename}, line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename in OWN_FILES]
    return f"{own[-1].filename}, line {own[-1].lineno}" if own else ""


def references_in(plain: Any) -> Iterator[str]:
    """All FILE.py:NAME in plain data."""
    if is_reference(plain):
        yield plain
    elif isinstance(plain, Mapping):
        yield from (found for value in plain.values() for found in references_in(value))
    elif isinstance(plain, list | tuple):
        yield from (found for value in plain for found in references_in(value))
