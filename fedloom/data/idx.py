"""The IDX format of MNIST and its relatives: a magic number, the shape, then the entries, all big-endian."""

from pathlib import Path

import numpy as np

from fedloom.data.files import open_binary

_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: Path) -> np.ndarray:
    """The array of an IDX file, compressed (.gz) or not, in the machine's own byte order."""
    with open_binary(path) as file:
        content = file.read()
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _TYPES:
        raise ValueError(
            f"{path} is not an IDX file: it must begin with two zero bytes, a type in "
            f"{', '.join(f'0x{t:02X}' for t in _TYPES)} and the number of dimensions, but begins with "
            f"{content[:4].hex(' ') or 'nothing'}."
        )
    dtype, dimensions = np.dtype(_TYPES[content[2]]), content[3]
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise ValueError(f"{path} is truncated: {dimensions} sizes should follow the magic number, but the file ends.")
    shape = tuple(int(n) for n in np.frombuffer(content, ">u4", dimensions, 4))
    expected = dtype.itemsize
    for n in shape:  # not np.prod: sizes out of a damaged file can overflow
        expected *= n
    if len(content) - start != expected:
        raise ValueError(
            f"{path} says that its shape is {shape}, so {expected} bytes should follow the header, but "
            f"{len(content) - start} do; get the file again."
        )
    return np.frombuffer(content, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def read_images(path: Path) -> np.ndarray:
    """28 x 28 images of bytes."""
    images = read_idx(path)
    if images.dtype != np.uint8 or images.shape[1:] != (28, 28):
        raise ValueError(f"{path} must have 28 x 28 images of bytes, but has {images.dtype} of shape {images.shape}.")
    return images


def read_labels(path: Path) -> np.ndarray:
    """One integer for each example, as int32."""
    labels = read_idx(path)
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"{path} must have one label for each image, but has {labels.dtype} of shape {labels.shape}.")
    return labels.astype(np.int32)
