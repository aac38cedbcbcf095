"""Folders of images, as people sort them: a folder a class, and above it a folder an agent if it is theirs already.

    ROOT/train/CLASS/*.png     ROOT/test/CLASS/*.png     divided by `data.partition`
    ROOT/CLASS/*.png                                     the same; a share is drawn for testing
    ROOT/agents/NAME/CLASS/*.png   ROOT/test/...         each agent's own; without a test folder a share of everybody's

Images are opened when they are wanted, unless all of them are small. Links are not followed, and how large an image is
is looked at before it is unpacked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedstein.data.examples import Dataset, Examples
from fedstein.data.pixels import eight_bits
from fedstein.data.rows import MEMORY, LazyRows, Rows, loaded
from fedstein.data.sources.base import Held, Source
from fedstein.data.sources.contents import EVERYBODYS, of_agent
from fedstein.data.sources.table import agent_id, drawn, numbered, share_of, some_of
from fedstein.errors import UserError
from fedstein.extras import needs_extra

if TYPE_CHECKING:
    from fedstein.data.settings import DataConfig

__all__ = ["SOURCE", "SUFFIXES", "images_in", "read", "to_predict"]

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff")
_FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "TIFF")  # others are read by programs that pillow starts
_MOST_PIXELS = 2**26
GREY = ("1", "L", "LA", "I", "I;16", "I;16L", "I;16B", "F")


@dataclass(frozen=True)
class _Image:
    """An image that is there."""

    path: Path
    label: str
    owner: str = ""


def read(data: DataConfig, remote: bool) -> Dataset | Held:
    """The images of a folder.

    Args:
        data: the section.
        remote: the agents keep their images elsewhere; only the test folder is looked into.
    """
    if data.path is None:
        raise UserError("The 'data.path' must name your folder of images when data.name is 'images'. Got nothing.")
    root = Path(data.path)
    apart = {name for name in ("train", "test", "agents") if (root / name).is_dir()}
    test = list(_by_class(root / "test")) if "test" in apart else []
    if remote:
        if not test:
            raise UserError(f"The folder {root} must have images in test/CLASS/: the agents keep theirs. Got none.")
        train = []
    elif "agents" in apart:
        train = [replace(one, owner=folder.name) for folder in _folders(root / "agents") for one in _by_class(folder)]
    else:
        train = list(_by_class(root / "train" if "train" in apart else root))
    if not train and not remote:
        raise UserError(
            f"The folder {root} must have images in train/CLASS/, in agents/NAME/CLASS/ or in CLASS/ "
            f"({', '.join(SUFFIXES)}). Got none."
        )
    labels = data.class_names or tuple(sorted({one.label for one in (*train, *test)}))
    if len(labels) < 2:
        raise UserError(f"The images in {root} must be of at least two classes, a folder each. Got {some_of(labels)}.")
    gauge = _Gauge.of((*test, *train), data)
    known: dict[str, Any] = {"class_names": labels, "size": gauge.size, "channels": gauge.channels}
    notes = [f"images: {gauge.size[0]} x {gauge.size[1]}, {'grey' if gauge.channels == 1 else 'colour'}"]
    notes.append(f"classes: {some_of(labels)}")

    def examples(images: Sequence[_Image]) -> Examples:
        return Examples(gauge.rows([one.path for one in images], str(root)), _targets(images, labels, root))

    if remote:
        judged = examples(test)
        return Held(
            [judged.none()] * data.agents, judged, len(labels), labels, settings=known, notes=tuple(notes),
            contents={EVERYBODYS: _named(test, root)},
        )  # fmt: skip
    if not test:
        notes.append(f"{share_of(data):.0%} of the images were drawn for testing")
    if "agents" not in apart:
        rows = np.arange(len(train))
        kept, out = (rows, None) if test else drawn(rows, share_of(data), 0)
        judged = examples(test or _some(train, out))
        return Dataset(
            "images", examples(_some(train, kept)), judged, len(labels), labels, known, tuple(notes),
            {EVERYBODYS: _named([*train, *test], root)},
        )  # fmt: skip
    names, owners = numbered([one.owner for one in train], data.agent_ids, str(root), "agents")
    held, tests, contents = [], [], {EVERYBODYS: _named(test, root)}
    for agent in range(len(names)):
        rows = (owners == agent).nonzero()[0]
        contents[of_agent(agent)] = _named(_some(train, rows), root)
        if not test:
            rows, out = drawn(rows, share_of(data), agent)
            tests.append(out)
        held.append(examples(_some(train, rows)))
    judged = examples(test or _some(train, np.concatenate(tests)))
    known |= {"agents": len(names), "agent_ids": data.agent_ids or tuple(map(agent_id, names))}
    notes.append(f"agents: {some_of([f'{k} {name}' for k, name in enumerate(names)])}")
    return Held(held, judged, len(labels), labels, tuple(names), known, tuple(notes), contents=contents)


def _named(images: Sequence[_Image], root: Path) -> dict[str, Path]:
    """The files by their names below the folder: a file in another class's folder is another one."""
    return {one.path.relative_to(root).as_posix(): one.path for one in images}


def images_in(paths: Sequence[Path]) -> list[Path]:
    """The image files among some paths, and all that are anywhere beneath the folders among them, in order.

    Raises:
        UserError: one is not there, or a folder has no images.
    """
    found = []
    for path in paths:
        there = [path] if path.is_file() else sorted(_beneath(path))
        if not there:
            raise UserError(f"{path} must be an image, or a folder with images ({', '.join(SUFFIXES)}). Got none.")
        found += there
    return found


def _beneath(folder: Path) -> Iterator[Path]:
    for place, folders, _ in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from _files_in(Path(place))


def to_predict(files: Sequence[Path], data: DataConfig) -> LazyRows:
    """Images of nobody's, brought to the size and the colours that a run has written down, when they are wanted.

    Args:
        files: at least one.
        data: the run's section.
    """
    return _Gauge.of([_Image(file, "") for file in files], data).lazily(files, "the images")


def _some(images: Sequence[_Image], rows: np.ndarray | None) -> list[_Image]:
    return [] if rows is None else [images[row] for row in rows.tolist()]


def _by_class(folder: Path) -> Iterator[_Image]:
    for place in _folders(folder):
        yield from (_Image(path, place.name) for path in _files_in(place))


def _files_in(folder: Path) -> Iterator[Path]:
    for entry in sorted(os.scandir(folder), key=lambda one: one.name):
        if entry.is_file(follow_symlinks=False) and entry.name.lower().endswith(SUFFIXES):
            yield Path(entry.path)


def _folders(folder: Path) -> list[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda one: one.name)
    except OSError as error:
        raise UserError(f"Cannot look into {folder}: {error.strerror}.") from error
    return [Path(one.path) for one in entries if one.is_dir(follow_symlinks=False) and not one.name.startswith(".")]


def _targets(images: Sequence[_Image], labels: Sequence[str], root: Path) -> Tensor:
    numbers = {label: number for number, label in enumerate(labels)}
    if unknown := [one for one in images if one.label not in numbers]:
        raise UserError(f"The folder '{unknown[0].label}' in {root} is none of 'data.class_names': {some_of(labels)}.")
    return torch.tensor([numbers[one.label] for one in images], dtype=torch.int64)


@dataclass(frozen=True)
class _Gauge:
    """What every image is brought to: its size, and grey or colour."""

    size: tuple[int, int]
    channels: int
    resize: bool
    asked: bool  # for grey or colour
    small: bool  # all images together

    @staticmethod
    def of(images: Sequence[_Image], data: DataConfig) -> _Gauge:
        """As the settings say; what is left out is as the first image has it."""
        with _opened(images[0].path) as first:
            size = data.size or (first.height, first.width)
            grey = first.mode in GREY
        channels = data.channels or (1 if grey else 3)
        small = 4 * channels * size[0] * size[1] * len(images) <= MEMORY
        return _Gauge(size, channels, data.size is not None, data.channels is not None, small)

    def rows(self, paths: Sequence[Path], what: str) -> Rows:
        """(n, channels, height, width) in 0..1; in memory if all of them are small."""
        rows = self.lazily(paths, what)
        return loaded(rows) if self.small else rows

    def lazily(self, paths: Sequence[Path], what: str) -> LazyRows:
        """The same, read when they are wanted."""
        row = torch.Size((self.channels, *self.size))
        return LazyRows(_Files(paths, self), torch.arange(len(paths)), row, torch.float32, what, made=_in_unit)

    def pixels(self, path: Path) -> Tensor:
        """(channels, height, width) bytes."""
        with _opened(path) as image:
            if (image.height, image.width) != self.size and not self.resize:
                raise UserError(
                    f"{path} is {image.height} x {image.width} pixels, and the first image is {self.size[0]} x "
                    f"{self.size[1]}. Set a size for all of them: data.size=[{self.size[0]},{self.size[1]}]."
                )
            if self.channels == 1 and not self.asked and image.mode not in GREY:
                raise UserError(
                    f"{path} is in colour ({image.mode}), and the first image is grey. Say what all are to be: "
                    "data.channels=1 or 3."
                )
            image = eight_bits(image, str(path)).convert("L" if self.channels == 1 else "RGB")
            if self.resize and (image.height, image.width) != self.size:
                image = image.resize((self.size[1], self.size[0]), 2)  # bilinear
            values = np.array(image, dtype=np.uint8)
        return torch.from_numpy(values.reshape(*self.size, self.channels)).permute(2, 0, 1).contiguous()


class _Files:
    """Reads images."""

    def __init__(self, paths: Sequence[Path], gauge: _Gauge) -> None:
        self._paths, self._gauge = paths, gauge

    def __call__(self, places: Sequence[int]) -> Tensor:
        return torch.stack([self._gauge.pixels(self._paths[place]) for place in places])


def _in_unit(x: Tensor) -> Tensor:
    return x.float() / 255.0


class _opened:  # noqa: N801  (reads like open)
    """An image, refused before it is unpacked if it is giant or none."""

    def __init__(self, path: Path) -> None:
        with needs_extra("images", "Images"):
            from PIL import Image, UnidentifiedImageError
        self._path, self._open, self._none = path, Image.open, UnidentifiedImageError

    def __enter__(self) -> Any:
        try:
            self._image = self._open(self._path, formats=_FORMATS)
            if self._image.width * self._image.height > _MOST_PIXELS:
                raise UserError(f"{self._path} has {self._image.width:,} x {self._image.height:,} pixels: too many.")
            self._image.load()
        except UserError:
            raise
        except Exception as error:  # a hostile file can make a decoder raise nearly anything
            raise UserError(f"Cannot read the image {self._path}: {error}.") from error
        return self._image

    def __exit__(self, *_: object) -> None:
        self._image.close()


SOURCE = Source(
    "your own folder of images: train/CLASS/ and test/CLASS/, or agents/NAME/CLASS/ (data.path)", read=read, own=True
)
