"""A reader for IDX, the file format of MNIST and Fashion-MNIST, plain or gzipped."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedstein.errors import UserError

__all__ = ["read_idx"]

_LARGEST = 1 << 28  # bytes; Fashion-MNIST's largest file is 47 MB, so no file makes us fill the memory


def read_idx(path: Path, sha256: str | None = None) -> NDArray[np.uint8]:
    """The array of unsigned bytes in an IDX file.

    Args:
        path: the file; gzipped if it begins like gzip.
        sha256: hexadecimal SHA-256 that the *unpacked* content must have.

    Raises:
        UserError: the file is missing, damaged, not IDX of unsigned bytes, or not the one expected.
    """
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"Cannot read the data file {path}: {error}. Delete it and get the data again.") from error
    if len(content) > _LARGEST:
        raise UserError(f"The data file {path} unpacks to more than {_LARGEST} bytes. It is not what was expected.")
    if sha256 is not None and (digest := hashlib.sha256(content).hexdigest()) != sha256:
        raise UserError(
            f"The data file {path} is not the published one: SHA-256 {digest}, expected {sha256}. "
            "Delete it and get the data again."
        )
    dims = content[3] if len(content) > 4 and content[:3] == b"\x00\x00\x08" else 0
    shape = tuple(int.from_bytes(content[4 + 4 * i : 8 + 4 * i], "big") for i in range(dims))
    start = 4 + 4 * dims
    if not dims or len(content) != start + prod(shape):
        raise UserError(f"The data file {path} is not IDX of unsigned bytes, or is cut short ({len(content)} bytes).")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
