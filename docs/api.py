"""The API reference: one page for each part of the library, written from its docstrings.

It reads the running library, not its source, and so knows each hyperparameter's domain, default and line of help. A
public name without a docstring, or one without a place on any page, is an error.
"""

import dataclasses
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

import fedloom as fl
from docs.api_parts import PARTS


class Name(NamedTuple):
    """A public name: where users import it from, and what it is."""

    path: str
    value: Any

    @property
    def last(self) -> str:
        return self.path.rpartition(".")[2]


def exported(module: ModuleType) -> list[str]:
    """The public names of a module: `__all__`, or else what it defines and what it imports `as` itself."""
    if hasattr(module, "__all__"):
        names = list(module.__all__)
    else:
        source = inspect.getsource(module)
        names = re.findall(r"^from \S+ import (\w+) as \1$", source, re.MULTILINE)
        names += re.findall(r"^(?:def|class) ([a-zA-Z]\w*)", source, re.MULTILINE)
        names += re.findall(r"^([A-Z]+): dict\b", source, re.MULTILINE)
    return [name for name in names if not inspect.ismodule(getattr(module, name))]


def _found(entry: str) -> Iterator[Name]:
    """All public names of a module, or the one that `entry` is."""
    try:
        module = importlib.import_module(entry)
    except ModuleNotFoundError:
        package, _, name = entry.rpartition(".")
        yield Name(entry, getattr(importlib.import_module(package), name))
    else:
        yield from (Name(f"{entry}.{name}", getattr(module, name)) for name in exported(module))


def contents() -> dict[str, list[Name]]:
    """The names on each page; one that is exported in several places is on the first page that has it."""
    seen: set[int] = set()
    pages: dict[str, list[Name]] = {}
    for page, part in PARTS.items():
        pages[page] = []
        for name in (name for entry in part.entries for name in _found(entry)):
            if id(name.value) not in seen:
                seen.add(id(name.value))
                pages[page].append(_shortest(name))
    return pages


def _shortest(name: Name) -> Name:
    return Name(f"fedloom.{name.last}", name.value) if getattr(fl, name.last, None) is name.value else name


def methods(cls: type) -> list[str]:
    """The public methods and properties that a class defines itself."""
    kinds = (property, classmethod, staticmethod)
    return [n for n, v in vars(cls).items() if n[0] != "_" and (inspect.isfunction(v) or isinstance(v, kinds))]


def undocumented() -> list[str]:
    """Public functions, classes and methods that have no docstring, and names of `fedloom` that no page has."""
    pages = contents()
    places = {id(name.value) for names in pages.values() for name in names}
    missing = [f"fedloom.{n} is on no page" for n in exported(fl) if n[0] != "_" and id(getattr(fl, n)) not in places]
    for name in (name for names in pages.values() for name in names):
        value, doc = name.value, name.value.__doc__
        if not _has_docstring(value):
            continue
        if not doc or (inspect.isclass(value) and doc.startswith(f"{name.last}(")):  # what a dataclass writes by itself
            missing.append(f"{name.path} has no docstring")
        if inspect.isclass(value) and value not in fl.ALGORITHMS.values():  # whose methods are their pseudo-code
            here = (method for method in methods(value) if not _method_doc(value, method))
            missing += [f"{name.path}.{method} has no docstring" for method in here]
    return missing


def _has_docstring(value: Any) -> bool:
    """A class or a function can have one; a registry, a metric, or another name for a type cannot."""
    return inspect.isclass(value) or inspect.isfunction(inspect.unwrap(value))


def _method_doc(cls: type, method: str) -> str | None:
    """The docstring of a method, or that of the method which it overrides."""
    return next(
        (vars(base)[method].__doc__ for base in cls.__mro__ if getattr(vars(base).get(method), "__doc__", "")), None
    )


def pages() -> dict[str, str]:
    """The pages, as Markdown, by the name of the file."""
    if problems := undocumented():
        raise SystemExit("The API reference is incomplete:\n  " + "\n  ".join(problems))
    found = contents()
    where = {name.last: f"{page}.md#{name.path}" for page, names in found.items() for name in names}
    index = ["# API reference", "", "Every public name, by package.", ""]
    written = {}
    for page, names in found.items():
        part = PARTS[page]
        index.append(f"- [{part.title}]({page}.md): " + ", ".join(f"[`{n.last}`]({page}.md#{n.path})" for n in names))
        lines = [f"# {part.title}", "", part.about]
        for name in names:
            lines += ["", f"## `{name.last}` {{ #{name.path} }}", "", *_described(name, where)]
        written[f"{page}.md"] = "\n".join(lines) + "\n"
    return written | {"index.md": "\n".join(index) + "\n"}


def _described(name: Name, where: dict[str, str]) -> Iterator[str]:
    value = name.value
    if isinstance(value, dict):
        yield f"`{name.path}`, the registry: " + ", ".join(f"`{key}`" for key in value) + "."
        return
    if not _has_docstring(value):
        yield from ["```python", f"{name.path} = {_plain(str(value))}", "```"]
        return
    yield from _code(name.path, value)
    method = next((key for key, cls in fl.ALGORITHMS.items() if cls is value), None)
    if method is not None:  # a method's docstring is its paper's page
        first = value.about or inspect.cleandoc(value.__doc__).splitlines()[0]
        yield from [f"{first} [More](../algorithms.md#{method})", ""]
    else:
        yield from [_linked(value, where), ""]
    if not inspect.isclass(value):
        return
    yield from _fields(value)
    for attribute in methods(value):
        own = inspect.getattr_static(value, attribute)
        if own.__doc__ and method is None:
            yield from ["", f"### `{attribute}` {{ #{name.path}.{attribute} }}", ""]
            if not isinstance(own, property):
                yield from _code(f"{name.last}.{attribute}", getattr(value, attribute))
            yield _linked(own, where)


def _code(path: str, value: Any) -> list[str]:
    """The signature, one parameter in a line if it is long."""
    parameters, returns = _signature(value)
    text = f"{path}({', '.join(parameters)}){returns}" if parameters or not inspect.isclass(value) else path
    if len(text) > 100:
        text = f"{path}(\n    " + ",\n    ".join(parameters) + f",\n){returns}"
    return ["```python", text, "```", ""]


def _signature(value: Any) -> tuple[list[str], str]:
    """The parameters, and what is returned with its arrow; nothing of a class that is not called."""
    try:
        signature = inspect.signature(value)
    except ValueError:  # some exceptions have none
        return [], ""
    if getattr(value, "_is_protocol", False):
        return [], ""
    shown: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not any(item.startswith("*") for item in shown):
            shown.append("*")
        if parameter.name != "self":
            shown.append(_plain(str(parameter)))
    if inspect.isclass(value) or signature.return_annotation is signature.empty:
        return shown, ""
    return shown, " -> " + _plain(inspect.formatannotation(signature.return_annotation)).strip("'")


def _plain(text: str) -> str:
    """Names without the modules that define them."""
    text = re.sub(r"<function (?:\w+\.)*(\w+) at 0x\w+>", r"\1", text)
    text = re.sub(r"<function \S+ at 0x\w+>|<dataclasses._MISSING_TYPE object at 0x\w+>", "...", text)
    text = re.sub(r"<class '([\w.]+)'>", r"\1", text)
    return re.sub(
        r"\b(?:fedloom|jax|jaxlib|numpy|typing|collections|pathlib|os|optax|matplotlib)\.(?:\w+\.)*", "", text
    )


def _fields(cls: type) -> Iterator[str]:
    """A table of the fields: default, domain and help of hyperparameters, or the comments beside other fields."""
    fields = [f for f in dataclasses.fields(cls) if "domain" in f.metadata] if dataclasses.is_dataclass(cls) else []
    comments = re.findall(r"^    (\w+): .*?  # (?!type:|noqa)(.+)$", _source(cls), re.MULTILINE)
    if fields:
        yield from ["| field | default | must be | |", "|---|---|---|---|"]
    elif comments:
        yield from ["| field | |", "|---|---|"]
        yield from (f"| `{name}` | {_text(comment).replace('|', '&#124;')} |" for name, comment in comments)
    for field in fields:
        default = _plain(repr(field.default)) if field.default is not dataclasses.MISSING else ""
        default = "`optax.sgd(1.0)`" if field.name == "optimizer" else f"`{default}`" if default else "required"
        yield f"| `{field.name}` | {default} | {field.metadata['domain'].words} | {field.metadata['doc']} |"


def _source(cls: type) -> str:
    return inspect.getsource(cls) if cls.__module__.startswith("fedloom") else ""


def _text(text: str) -> str:
    """Plain text in Markdown: neither tags nor emphasis by accident."""
    text = re.sub(r"<(?=\w)", "&lt;", text)
    return re.sub(r"(?<![\w*])(\*\w+\*)(?![\w*])|(\*)", lambda m: m[1] or r"\*", text)


def _markdown(doc: str) -> str:
    """A docstring as Markdown: sections such as `Args:` become lists, and text that is set in columns stays so."""
    blocks = []
    for block in re.split(r"\n\s*\n", doc):
        head, _, rest = block.partition("\n")
        if re.fullmatch(r"(Args|Yields|Returns|Raises):", head):
            blocks.append(f"**{head[:-1]}**\n\n" + _items(textwrap.dedent(rest)))
        elif block.startswith("    "):
            blocks.append("```text\n" + textwrap.dedent(block) + "\n```")
        elif re.search(r"\S {2,}\S", block):
            blocks.append("```text\n" + block + "\n```")
        else:
            blocks.append(_text(block))
    return "\n\n".join(blocks)


def _items(text: str) -> str:
    items = [" ".join(item.split()) for item in re.split(r"\n(?=\S)", text)]
    if not all(re.match(r"[\w, ]+: ", item) for item in items):
        return " ".join(items)
    return "\n".join("- `{}`: {}".format(*item.split(": ", 1)) for item in items)


def _linked(value: Any, where: dict[str, str]) -> str:
    """The docstring as Markdown. Names in backticks lead to their descriptions, unless they are arguments here."""
    own = {value.__name__} if hasattr(value, "__name__") else set()
    if inspect.isfunction(value):
        own |= inspect.signature(value).parameters.keys()

    def link(match: re.Match[str]) -> str:
        name = match[1]
        return f"[`{name}`]({where[name]})" if name in where and name not in own else match[0]

    parts = re.split(r"(```.*?```)", _markdown(inspect.cleandoc(value.__doc__)), flags=re.DOTALL)
    return "".join(p if p.startswith("```") else re.sub(r"`(\w+)`", link, p) for p in parts)
