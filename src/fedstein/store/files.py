"""Files that are whole or not there: one atomic write, append-only JSON lines, checked tensors.

Nothing is ever unpickled; every file that is read may be damaged or hostile.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fedstein.errors import UserError

__all__ = ["Lines", "check_sha256", "load_tensor", "load_tensors", "read_lines", "save_tensors", "to_json", "write"]


def write(path: Path, content: bytes) -> None:
    """Replace a file in one step: whoever reads it, at any moment, finds the old one or the new one, whole."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)  # the new name must survive a power cut as well
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def save_tensors(path: Path, tensors: Mapping[str, Tensor], about: dict[str, str] | None = None) -> str:
    """Write a safetensors file, and return its SHA-256.

    Args:
        path: the file.
        tensors: by name.
        about: the metadata in its header.
    """
    content = save({name: value.contiguous() for name, value in tensors.items()}, about)
    write(path, content)
    return hashlib.sha256(content).hexdigest()


def check_sha256(path: Path, expected: str) -> None:
    """Refuse a file that is not what it was when it was written."""
    try:
        if not path.is_file():
            raise UserError(f"The file {path} is missing.")
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"The file {path} cannot be read: {error.strerror}.") from error
    if digest != expected:
        raise UserError(f"The file {path} is damaged: its SHA-256 is another one.")


def load_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file: finite float32, or a UserError."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise UserError(f"The file {path} is damaged: {error}.") from error
    for name, value in tensors.items():
        if value.dtype != torch.float32 or not torch.isfinite(value).all():
            raise UserError(f"The file {path} is damaged: '{name}' is not finite float32.")
    return tensors


def load_tensor(path: Path, name: str) -> Tensor:
    """One of them."""
    tensors = load_tensors(path)
    if name not in tensors:
        raise UserError(f"The file {path} is damaged: it holds no '{name}'.")
    return tensors[name]


class Lines:
    """A file of JSON objects, one a line, that only grows. A line survives the end of the process at once."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if (size := os.fstat(self._file).st_size) and not _ends_with_newline(path, size):
            os.write(self._file, b"\n")  # what was cut off by a kill stays a line of its own

    def add(self, value: Mapping[str, Any]) -> None:
        """Append one object."""
        content = (to_json(value) + "\n").encode()
        if (written := os.write(self._file, content)) != len(content):  # a disk that is full takes a part
            os.write(self._file, content[written:])

    def sync(self) -> None:
        """What was added survives a power cut as well."""
        os.fsync(self._file)

    def close(self) -> None:
        """The end."""
        os.close(self._file)


def _ends_with_newline(path: Path, size: int) -> bool:
    with path.open("rb") as file:
        file.seek(size - 1)
        return file.read() == b"\n"


def read_lines(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """The objects of such a file, each with the position of its end; what is not an object on a line is left out."""
    end = 0
    if not path.is_file():  # not there, or something that would block
        return
    try:
        with path.open("rb") as file:
            for line in file:
                end += len(line)
                if not line.endswith(b"\n"):
                    return
                try:
                    value = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(value, dict):
                    yield value, end
    except OSError as error:
        raise UserError(f"The file {path} cannot be read: {error.strerror}.") from error


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON as the standard has it: a number that is not finite becomes null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
