"""Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017): where it may be, how to get it, and that it is the real one.

SHA-256 is taken of the *unpacked* files: Debian packs them anew, so the packed ones differ from upstream's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import urllib.request
from pathlib import Path

import torch

from fedstein.data.examples import Dataset, Examples
from fedstein.data.sources.base import Source
from fedstein.data.sources.fetch import cache_folder
from fedstein.data.sources.idx import read_idx
from fedstein.errors import FedsteinError, UserError

__all__ = ["SOURCE", "find_fashion_mnist", "get_fashion_mnist", "load_fashion_mnist"]

DEBIAN_PACKAGE = "dataset-fashion-mnist"
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
UPSTREAM = "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/"
FILES = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}


def find_fashion_mnist(folder: Path | None = None) -> Path | None:
    """The first folder that has all four files: the named one only, or the cache, then Debian's."""
    places = [folder] if folder is not None else [cache_folder() / "fashion-mnist", DEBIAN_FOLDER]
    return next((place for place in places if all(_file(place, name) for name in FILES)), None)


def _file(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / f"{name}.gz", folder / name) if path.is_file()), None)


def load_fashion_mnist(folder: Path | None = None) -> Dataset:
    """All 60,000 + 10,000 images as (n, 1, 28, 28) in 0..1, verified."""
    place = find_fashion_mnist(folder)
    if place is None:
        where = f"in {folder}" if folder is not None else f"in {cache_folder() / 'fashion-mnist'} or {DEBIAN_FOLDER}"
        raise UserError(
            f"Fashion-MNIST is not {where}. Run 'fedstein data get fashion-mnist', or name its folder with "
            "'data.path', or use the small set that ships with scikit-learn: '--set data.name=digits'."
        )
    parts = []
    for name, sha256 in FILES.items():
        path = _file(place, name)
        assert path is not None
        parts.append(torch.from_numpy(read_idx(path, sha256).copy()))
    train = Examples(parts[0].float().div_(255.0).unsqueeze_(1), parts[1].long())
    test = Examples(parts[2].float().div_(255.0).unsqueeze_(1), parts[3].long())
    return Dataset("fashion-mnist", train, test, classes=10)


def get_fashion_mnist() -> tuple[Path, str]:
    """Obtain Fashion-MNIST: what is there already, else Debian's package, else HTTPS. Always verified.

    Returns:
        The folder and how it came there: "found", "debian" or "https".
    """
    place, how = find_fashion_mnist(), "found"
    if place is None and _install_debian_package():
        place, how = find_fashion_mnist(), "debian"
    if place is None:
        place, how = _download(), "https"
    for name, sha256 in FILES.items():
        path = _file(place, name)
        assert path is not None
        read_idx(path, sha256)
    return place, how


def _install_debian_package() -> bool:
    """Install the package where this machine is Debian and we may; False otherwise."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return False
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "--no-install-recommends", DEBIAN_PACKAGE]
    for command in (install, ["apt-get", "update"], install):
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        if done.returncode == 0 and command is install:
            return True
    return False


def _download() -> Path:
    """The four files from the upstream project, verified before they get their names."""
    folder = cache_folder() / "fashion-mnist"
    folder.mkdir(parents=True, exist_ok=True)
    for name, sha256 in FILES.items():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            part = Path(scratch) / "part"
            try:
                with urllib.request.urlopen(UPSTREAM + name + ".gz", timeout=60) as answer, part.open("wb") as file:
                    shutil.copyfileobj(answer, file)
            except OSError as error:
                raise FedsteinError(
                    f"Cannot get {name}.gz: {error}. On Debian install '{DEBIAN_PACKAGE}' as root; elsewhere put "
                    f"the four files of the Fashion-MNIST project into {folder}."
                ) from error
            read_idx(part, sha256)
            part.replace(folder / f"{name}.gz")
    return folder


SOURCE = Source(
    "Fashion-MNIST, 60,000 + 10,000 images of 28 x 28; from a folder, the cache or Debian's package",
    load_fashion_mnist,
    get=get_fashion_mnist,
    where=find_fashion_mnist,
    class_names=(
        "T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
    ),
)  # fmt: skip
