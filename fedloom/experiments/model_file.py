"""Files of models: named arrays, and what is known of them as JSON. No format needs pickle to be read.

.safetensors   the facts are in the file's own metadata
.npz           the facts are the array "fedloom", of bytes
.pt            a state_dict, written by torch.save; the facts are in a file of the same name that ends with .json
"""

import io
import json
import pathlib
from typing import Any

import numpy as np

from fedloom.experiments.files import write_whole
from fedloom.models.adapters import library
from fedloom.version import __version__

FORMATS = {"safetensors": ".safetensors", "npz": ".npz", "torch": ".pt"}
FACTS = "fedloom"


def write(path: pathlib.Path, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> pathlib.Path:
    """Write a new file."""
    if path.suffix not in FORMATS.values():
        raise ValueError(f"{path}: the name of a model's file must end with {', '.join(FORMATS.values())}.")
    beside = path.with_suffix(".json")
    for there in (path, *([beside] if path.suffix == ".pt" else [])):
        if there.exists():
            raise ValueError(f"{there} already exists; delete it, or save the model under another name.")
    if not path.parent.is_dir():
        raise ValueError(f"{path}: there is no folder {path.parent}; make it before saving.")
    text = json.dumps({"fedloom": __version__, **facts})
    arrays = {name: np.ascontiguousarray(a) for name, a in arrays.items()}
    if path.suffix == ".safetensors":
        from safetensors.numpy import save  # imported late, as few need it

        write_whole(path, save(arrays, {FACTS: text}))
        return path
    content = io.BytesIO()
    if path.suffix == ".npz":
        if FACTS in arrays:
            raise ValueError(f"{path}: a parameter is called {FACTS!r}; save it as .safetensors.")
        np.savez(content, **arrays, **{FACTS: np.frombuffer(text.encode(), np.uint8)})  # type: ignore[arg-type]
    else:
        torch = library("torch")
        torch.save({name: torch.from_numpy(a.copy()) for name, a in arrays.items()}, content)
        write_whole(beside, text.encode())
    write_whole(path, content.getvalue())
    return path


def read(path: pathlib.Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays of a file, and what is known of them."""
    if not path.is_file():
        raise ValueError(f"There is no file {path}.")
    try:
        if path.suffix == ".safetensors":
            from safetensors import safe_open

            with safe_open(path, "np") as file:
                text = (file.metadata() or {}).get(FACTS)
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        elif path.suffix == ".npz":
            with (
                path.open("rb") as opened,
                np.load(opened, allow_pickle=False) as npz,
            ):
                arrays = {name: npz[name] for name in npz.files}
            text = arrays.pop(FACTS).tobytes().decode() if FACTS in arrays else None
        elif path.suffix == ".pt":
            torch = library("torch")
            arrays = {name: t.numpy() for name, t in torch.load(path, weights_only=True).items()}
            beside = path.with_suffix(".json")
            text = beside.read_text() if beside.is_file() else None
        else:
            raise ValueError(f"the name must end with {', '.join(FORMATS.values())}")
        facts = None if text is None else json.loads(text)
    except ImportError:
        raise
    except Exception as error:  # each library has kinds of its own for a damaged file
        raise ValueError(f"{path} cannot be read as a model: {error}.") from error
    if not isinstance(facts, dict) or not {"model", "classes", "y"} <= facts.keys():
        raise ValueError(f"{path} was not written by FedLoom: it does not say which model its arrays belong to.")
    return arrays, facts
