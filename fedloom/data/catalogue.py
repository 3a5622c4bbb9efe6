"""Where the public files come from: addresses, sizes and checksums. Only data; `download.py` fetches them.

The checksums are those that the publishers, TensorFlow Federated, Keras or torchvision give, or (MNIST, heart disease)
the SHA-256 of files whose MD5 or SHA-256 is widely known.
"""

from typing import NamedTuple


class File(NamedTuple):
    """One public file, and where it goes in the data directory."""

    url: str
    path: str  # relative to the data directory
    digest: str  # "sha256:..." or "md5:..."
    size: int | None = None  # in bytes, where it is known
    contents: tuple[str, ...] = ()  # of an archive: files to unpack, relative to the folder of the archive

    def unpacked(self) -> tuple[str, ...]:
        """Paths, relative to the data directory, of the files to unpack."""
        folder = self.path.rpartition("/")[0]
        return tuple(f"{folder}/{name}" for name in self.contents)


_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_QMNIST = "https://raw.githubusercontent.com/facebookresearch/qmnist/master/"
_EMNIST = "https://biometrics.nist.gov/cs_links/EMNIST/"
_CIFAR = "https://www.cs.toronto.edu/~kriz/"
_TFF = "https://storage.googleapis.com/tff-datasets-public/"
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease/"
_SPLITS = ("balanced", "byclass", "bymerge", "digits", "letters", "mnist")


def _mnist(name: str, sha256: str, size: int) -> File:
    return File(_MNIST + name, f"mnist/{name}", f"sha256:{sha256}", size)


def _heart(name: str, sha256: str, size: int) -> File:
    return File(_UCI + name, f"heart_disease/{name}", f"sha256:{sha256}", size)


def _tff(folder: str, name: str, sha256: str, *contents: str) -> File:
    return File(_TFF + name, f"{folder}/{name}", f"sha256:{sha256}", contents=contents)


CATALOGUE: dict[str, tuple[File, ...]] = {
    "mnist": (
        _mnist(
            "train-images-idx3-ubyte.gz", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9912422
        ),
        _mnist("train-labels-idx1-ubyte.gz", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28881),
        _mnist(
            "t10k-images-idx3-ubyte.gz", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1648877
        ),
        _mnist("t10k-labels-idx1-ubyte.gz", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4542),
    ),
    "mnist_writers": (
        File(
            f"{_QMNIST}qmnist-train-labels-idx2-int.gz",
            "mnist/qmnist-train-labels-idx2-int.gz",
            "md5:0058f8dd561b90ffdd0f734c6a30e5e4",
        ),
        File(
            f"{_QMNIST}qmnist-test-labels-idx2-int.gz",
            "mnist/qmnist-test-labels-idx2-int.gz",
            "md5:5b5b05890a5e13444e108efe57b788aa",
        ),
    ),
    "emnist": (
        File(
            f"{_EMNIST}gzip.zip",
            "emnist/gzip.zip",
            "md5:58c8d27c78d21e728a6bc7b3cc06412e",
            contents=tuple(
                f"gzip/emnist-{split}-{part}-{kind}-ubyte.gz"
                for split in _SPLITS
                for part in ("train", "test")
                for kind in ("images-idx3", "labels-idx1")
            ),
        ),
    ),
    "emnist_writers": (
        File(
            f"{_EMNIST}matlab.zip",
            "emnist/matlab.zip",
            "md5:1bbb49fdf3462bb70c240eac93fff0e4",
            contents=tuple(f"matlab/emnist-{split}.mat" for split in _SPLITS),
        ),
    ),
    "cifar10": (
        File(
            f"{_CIFAR}cifar-10-python.tar.gz",
            "cifar10/cifar-10-python.tar.gz",
            "sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        ),
    ),
    "cifar100": (
        File(
            f"{_CIFAR}cifar-100-python.tar.gz",
            "cifar100/cifar-100-python.tar.gz",
            "sha256:85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
            169001437,
        ),
    ),
    "heart_disease": (
        _heart("processed.cleveland.data", "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8", 18461),
        _heart("processed.hungarian.data", "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796", 10263),
        _heart("processed.switzerland.data", "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314", 4109),
        _heart("processed.va.data", "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f", 6737),
    ),
    "fed_emnist": (
        _tff(
            "fed_emnist",
            "fed_emnist.tar.bz2",
            "fe1ed5a502cea3a952eb105920bff8cffb32836b5173cb18a57a32c3606f3ea0",
            "fed_emnist_train.h5",
            "fed_emnist_test.h5",
        ),
    ),
    "fed_emnist_digitsonly": (
        _tff(
            "fed_emnist_digitsonly",
            "fed_emnist_digitsonly.tar.bz2",
            "55333deb8546765427c385710ca5e7301e16f4ed8b60c1dc5ae224b42bd5b14b",
            "fed_emnist_digitsonly_train.h5",
            "fed_emnist_digitsonly_test.h5",
        ),
    ),
    "fed_cifar100": (
        _tff(
            "fed_cifar100",
            "fed_cifar100.tar.bz2",
            "e8575e22c038ecef1ce6c7d492d7abee7da13b1e1ba9b70a7fc18531ba7590de",
            "fed_cifar100_train.h5",
            "fed_cifar100_test.h5",
        ),
    ),
    "shakespeare": (
        _tff(
            "shakespeare",
            "shakespeare.tar.bz2",
            "0285be9906cb5f268092eee4edeeacfc2af4574f2941f7cc2f08a321d7f5c707",
            "shakespeare_train.h5",
            "shakespeare_test.h5",
        ),
    ),
    "stackoverflow": (
        _tff(
            "stackoverflow",
            "stackoverflow.tar.bz2",
            "99eca2f8b8327a09e5fc123979df2d237acbc5e52322f6d86bf523ee47b961a2",
            "stackoverflow_train.h5",
            "stackoverflow_test.h5",
        ),
        _tff(
            "stackoverflow",
            "stackoverflow.word_count.tar.bz2",
            "1dc00256d6e527c54b9756d968118378ae14e6692c0b3b6cad470cdd3f0c519c",
            "stackoverflow.word_count",
        ),
        _tff(
            "stackoverflow",
            "stackoverflow.tag_count.tar.bz2",
            "6fe281cec490d9384a290d560072438e7e2b377bbb823876ce7bd6f82696772d",
            "stackoverflow.tag_count",
        ),
    ),
}
