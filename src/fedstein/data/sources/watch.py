"""Shoulder exercises under a smartwatch, with the people as agents: which of seven exercises is it?

Origin: Burns, Leung, Hardisty, Whyne, Henry and McLachlin, "Shoulder physiotherapy exercise recognition: machine
learning the inertial signals from a smartwatch" (2018); part of its data comes with the package seglearn 1.2.5 of
PyPI (David Burns; licence BSD of three clauses; SHA-256 of the wheel below): ten people, seven exercises, once with
either arm, 140 series of 19 to 52 seconds at 50 Hz: acceleration in g and turning in rad/s, three axes each.

The package keeps the data pickled. It is never unpickled: `boxed.py` parses it and takes the arrays out.

*Agents*: the ten people, in the order of their numbers.

*Inputs*: windows of 4 seconds, (6, 200) of float32. One begins every 2 seconds, so that neighbours share a half; what
is left at the end of a series is left out. Turning is divided by 2; these are constants, not anybody's spread.

*Test set*: whole series, so that no window for testing shares a sample with one for learning. Of person p and
exercise e (from 0) with p + e even, one of the two series is for testing: that of the side (p + e) / 2 modulo 2. That
is a quarter of all series; everybody keeps at least one series of each exercise to learn from. `data.validation =
0.2` holds out a fifth of everybody's series in the same way, whole ones.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedstein.data.examples import Examples
from fedstein.data.sources.base import Held, Source
from fedstein.data.sources.boxed import arrays_in
from fedstein.data.sources.fetch import Package, get_package
from fedstein.data.sources.published import Published, Way
from fedstein.data.sources.unpack import Member, from_zip, keep, verified

if TYPE_CHECKING:
    from fedstein.data.settings import DataConfig

__all__ = ["PUBLISHED", "SOURCE", "for_testing", "load_watch", "windows"]

PACKAGE = Package(
    "pip",
    "seglearn",
    "1.2.5",
    "seglearn-1.2.5-py3-none-any.whl",
    "ec6b952c85c9627050102854b372d85951563d3b990df677d7c55547e87413dd",
)
FILE = Member(
    "seglearn/data/watch_dataset.npy", 18_118_091, "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537"
)
PEOPLE = 10
# PEN, ABD, FEL, IR, ER, TRAP, ROW
EXERCISES = (
    "pendulum", "abduction", "forward elevation", "internal rotation", "external rotation", "trapezius", "row",
)  # fmt: skip
WINDOW, STEP = 200, 100  # samples: 4 seconds, and 2
SCALE = (1.0, 1.0, 1.0, 2.0, 2.0, 2.0)  # g, rad/s
_AGAIN = "fedstein data get watch"


def load_watch(folder: Path | None = None) -> Held:
    """Everybody's windows, verified."""
    return _read(_content(PUBLISHED.found(folder)))


def _content(place: Path) -> bytes:
    return verified(place / FILE.file, FILE, _AGAIN)


def _unpack(archive: Path, folder: Path) -> None:
    keep(folder, from_zip(archive, (FILE,), archive.name))


def for_testing(person: int, exercise: int, side: int) -> bool:
    """The public rule: whether a series is for testing."""
    return (person + exercise) % 2 == 0 and (person + exercise) // 2 % 2 == side


def windows(series: np.ndarray) -> Tensor:
    """The windows (n, 6, 200) of a series (samples, 6), in standard numbers."""
    standard = torch.from_numpy(series / np.array(SCALE)).float()
    return standard.unfold(0, WINDOW, STEP).contiguous()


@lru_cache(maxsize=1)
def _read(content: bytes) -> Held:
    data = arrays_in(content, FILE.file)
    who, what, sides = (np.asarray(data[name]).astype(np.int64) for name in ("subject", "y", "side"))
    own: list[list[tuple[Tensor, int, int]]] = [[] for _ in range(PEOPLE)]
    tests: list[tuple[Tensor, int]] = []
    for number, series in enumerate(data["X"]):
        person, exercise = int(who[number]) - 1, int(what[number])
        cut = windows(series)
        if for_testing(person, exercise, int(sides[number])):
            tests.append((cut, exercise))
        else:
            own[person].append((cut, exercise, number))
    agents = [Examples(torch.cat([cut for cut, _, _ in one]), _each([(cut, e) for cut, e, _ in one])) for one in own]
    return Held(
        agents,
        Examples(torch.cat([cut for cut, _ in tests]), _each(tests)),
        len(EXERCISES),
        EXERCISES,
        tuple(f"person {number + 1}" for number in range(PEOPLE)),
        settings={"agents": PEOPLE},
        notes=(f"{len(who)} series, {len(tests)} of them for testing; windows of 4 s, one every 2 s",),
        groups=tuple(_each([(cut, number) for cut, _, number in one]) for one in own),
    )


def _each(parts: list[tuple[Tensor, int]]) -> Tensor:
    """A number for every window of a series."""
    return torch.cat([torch.full((len(cut),), number) for cut, number in parts])


def _federation(data: DataConfig, remote: bool) -> Held:
    return load_watch(Path(data.path) if data.path else None)


PUBLISHED = Published(
    "watch",
    "The watch data",
    (FILE.file,),
    _content,
    (Way("pip", lambda folder: get_package(PACKAGE, folder), _unpack),),
)

SOURCE = Source(
    "ten people's shoulder exercises under a smartwatch, 7 kinds, windows of 6 x 200 (seglearn, BSD)",
    read=_federation,
    get=PUBLISHED.get,
    where=PUBLISHED.find,
    class_names=EXERCISES,
)
