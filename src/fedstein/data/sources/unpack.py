"""Single files out of an archive: plain files of a known size and content, and nothing else is ever written.

An archive is a list of instructions to make files. Here nothing of it is followed: what is wanted is looked for by its
whole name, must be a plain file of exactly the expected size, is read into memory, and is verified before it is kept.
"""

from __future__ import annotations

import hashlib
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fedstein.errors import FedsteinError, UserError

__all__ = ["Member", "from_tar", "from_zip", "keep", "verified"]

_MOST_MEMBERS = 10_000


@dataclass(frozen=True)
class Member:
    """A file in an archive.

    Args:
        name: its whole name there.
        size: bytes.
        sha256: of its content.
    """

    name: str
    size: int
    sha256: str

    @property
    def file(self) -> str:
        """Its name without folders: under this it is kept."""
        return self.name.rpartition("/")[2]


def from_tar(archive: Path, wanted: Sequence[Member]) -> dict[str, bytes]:
    """The contents of some files of a .tar.gz, by `Member.file`.

    Raises:
        FedsteinError: one is not there, is no plain file, or is another than expected.
    """
    by_name, came = {member.name: member for member in wanted}, {}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for count, entry in enumerate(tar):
                if count > _MOST_MEMBERS:
                    raise FedsteinError(f"{archive.name} has more than {_MOST_MEMBERS:,} files.")
                if (member := by_name.get(entry.name)) is not None:
                    inside = tar.extractfile(entry) if entry.isreg() and entry.size == member.size else None
                    came[member.file] = _checked(b"" if inside is None else inside.read(member.size), member, archive)
    except FedsteinError:
        raise
    except Exception as error:  # damage can make tarfile and zlib raise nearly anything
        raise FedsteinError(f"Cannot unpack {archive.name}: {error}.") from error
    return _all_there(came, wanted, archive.name)


def from_zip(archive: Path | BinaryIO, wanted: Sequence[Member], name: str) -> dict[str, bytes]:
    """The contents of some files of a .zip, by `Member.file`.

    Args:
        archive: it.
        wanted: the files.
        name: of the archive, in messages.

    Raises:
        FedsteinError: one is not there, or is another than expected.
    """
    came = {}
    try:
        with zipfile.ZipFile(archive) as packed:
            for member in wanted:
                if member.name in packed.namelist():
                    with packed.open(member.name) as inside:
                        came[member.file] = _checked(inside.read(member.size + 1), member, Path(name))
    except FedsteinError:
        raise
    except Exception as error:  # damage can make zipfile and zlib raise nearly anything
        raise FedsteinError(f"Cannot unpack {name}: {error}.") from error
    return _all_there(came, wanted, name)


def keep(folder: Path, contents: dict[str, bytes]) -> None:
    """Write files that were verified: each is whole when it gets its name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            part = Path(scratch) / "part"
            part.write_bytes(content)
            part.replace(folder / name)


def verified(path: Path, member: Member, again: str) -> bytes:
    """The content of a file that was kept.

    Args:
        path: it.
        member: what it must be.
        again: the command that gets it anew.

    Raises:
        UserError: it cannot be read, or is another.
    """
    try:
        with path.open("rb") as file:
            content = file.read(member.size + 1)
    except OSError as error:
        raise UserError(f"Cannot read the data file {path}: {error.strerror}. Get it again: {again}.") from error
    if (digest := hashlib.sha256(content).hexdigest()) != member.sha256:
        raise UserError(
            f"The data file {path} is not the published one: SHA-256 {digest}, expected {member.sha256}. Delete it "
            f"and get it again: {again}."
        )
    return content


def _checked(content: bytes, member: Member, archive: Path) -> bytes:
    if len(content) != member.size or hashlib.sha256(content).hexdigest() != member.sha256:
        raise FedsteinError(f"{member.name} in {archive.name} is not the file that is expected.")
    return content


def _all_there(came: dict[str, bytes], wanted: Sequence[Member], name: str) -> dict[str, bytes]:
    if missing := [member.name for member in wanted if member.file not in came]:
        raise FedsteinError(f"{name} has no {missing[0]}.")
    return came
