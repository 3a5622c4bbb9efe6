"""Reading pickles that hold arrays of numbers and nothing else. A pickle is a program: all other calls are refused."""

import pickle
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np


def _dtype(code: Any, align: Any = False, copy: Any = False) -> np.dtype:
    return np.dtype(code, bool(align), bool(copy))  # Python 2 wrote 0 and 1, which NumPy 2.4 deprecates


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes are encoded as {encoding!r}, not as latin1")
    return text.encode("latin1")


_reconstruct: Any = np.empty(0).__reduce__()[0]  # it has moved between versions of NumPy
_ALLOWED: dict[tuple[str, str], Callable] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Callable:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, which arrays of numbers do not need and which could do anything"
            ) from None


def read_arrays(file: BinaryIO, origin: str) -> dict[str, Any]:
    """The dictionary in a pickle of arrays, lists, numbers and texts, by Python 2 or 3; `origin` is for messages."""
    try:
        content = _Unpickler(file, encoding="latin1").load()
    except Exception as error:  # bytes that are not a pickle can raise anything
        raise ValueError(f"{origin} is refused as a pickle of arrays: {error or type(error).__name__}.") from error
    if not isinstance(content, dict):
        raise ValueError(f"{origin} must hold a dictionary, but holds a {type(content).__name__}.")
    return {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in content.items()}
