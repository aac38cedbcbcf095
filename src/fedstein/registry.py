"""Seams: the places where one part can be exchanged for another, each with a registry of parts by name.

A part of fedstein is one line in the registry of its seam. A package from outside declares an entry point in the
group ``fedstein.<seam>s`` (``fedstein.sparsifiers``, ``fedstein.methods``, ...), and its part is found by its name
like any other, on every engine. Nothing of a package is imported before its part is asked for.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, distributions, entry_points
from traceback import walk_tb
from typing import Any, Generic, TypeVar

from fedstein.errors import UserError, nearest

__all__ = ["Registry", "whose_fault"]

T = TypeVar("T")

_in_use: dict[str, EntryPoint] = {}  # parts from outside that this process has loaded, by where they are


class Registry(Mapping[str, T], Generic[T]):
    """The parts of one seam, by name.

    Args:
        seam: what one part is, for instance ``sparsifier``.
        about: what a part of it does, in a line.
        parts: fedstein's own; ``package.module:name`` instead of a part is imported when it is asked for.

    >>> rules = Registry("step rule", "how far to go", {"plain": "math:sqrt"})
    >>> rules["plain"](4.0), list(rules)
    (2.0, ['plain'])
    >>> rules["plane"]
    Traceback (most recent call last):
    fedstein.errors.UserError: There is no step rule 'plane'. Did you mean 'plain'?
    """

    def __init__(self, seam: str, about: str, parts: Mapping[str, T | str]) -> None:
        self.seam, self.about = seam, about
        self.group = f"fedstein.{seam.replace(' ', '_')}s"
        self._own = dict(parts)
        self._loaded: dict[str, T] = {}

    @cached_property
    def _outside(self) -> dict[str, EntryPoint]:
        points: dict[str, EntryPoint] = {}
        for point in entry_points(group=self.group):
            if point.name in self._own or point.name in points:
                warnings.warn(
                    f"The {self.seam} '{point.name}' of {point.value} is left out: the name is taken.", stacklevel=3
                )
            else:
                points[point.name] = point
        return points

    def __getitem__(self, name: str) -> T:
        if name in self._loaded:
            return self._loaded[name]
        part: Any = self._own.get(name)
        if part is None and name in self._outside:
            part = self._load_outside(self._outside[name])
        elif part is None:
            raise UserError(f"There is no {self.seam} '{name}'. {nearest(name, self)}")
        elif isinstance(part, str):
            module, _, attribute = part.partition(":")
            part = getattr(importlib.import_module(module), attribute)
        self._loaded[name] = part
        return self._loaded[name]

    def _load_outside(self, point: EntryPoint) -> Any:
        try:
            part = point.load()
        except Exception as error:  # whatever the package raises when it is imported
            raise UserError(
                f"The {self.seam} '{point.name}' cannot be loaded from {point.value}: {type(error).__name__}: {error}."
            ) from error
        _in_use[point.value] = point
        return part

    def get(self, name: str, default: Any = None) -> Any:
        """The part called `name`, or `default` where there is none."""
        return self[name] if name in self else default  # noqa: SIM401  (this is `get`)

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._outside

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from self._outside

    def __len__(self) -> int:
        return len(self._own) + len(self._outside)

    def __repr__(self) -> str:
        return f"Registry of every {self.seam}: {', '.join(self)}"

    def source(self, name: str) -> str:
        """Where a part comes from: ``fedstein``, or the module of another package."""
        return self._outside[name].value if name in self._outside else "fedstein"

    def check(self, name: str, *also: str) -> str:
        """For settings: `name`, if there is such a part.

        Args:
            name: in a config.
            also: words that are no parts, and may stand there all the same.

        Raises:
            ValueError: there is none; the words fit into the message of a config.
        """
        if name not in self and name not in also:
            raise ValueError(self.check_words(name, *also))
        return name

    def check_words(self, name: str, *also: str) -> str:
        """What is wrong with a name that is not known.

        Args:
            name: in a config.
            also: words that are no parts, and may stand there all the same.
        """
        known = [*also, *self]
        *others, last = map(repr, known)
        words = f"{', '.join(others)} or {last}" if others else last
        like = nearest(name, known)
        hint = like if like.startswith("Did") else "Packages bring more: 'fedstein components' lists what is installed."
        return f"must be {words}. Got {name!r} instead. {hint}"


def whose_fault(error: BaseException) -> str:
    """Who should be told of an error that nobody foresaw, in a sentence: fedstein, or the authors of a part.

    It is the part's if it arose in the part's package, or in what that called. Where parts of others are in use and
    none of them was at work when it arose, it may still be what one of them has answered.
    """
    points = {
        _top(point.module): point
        for package in distributions()
        for point in package.entry_points
        if point.group.startswith("fedstein.")
    }
    names = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
    if there := [name for name in names if _top(name) in points]:
        return f"This arose in {there[-1]} of {_package(points[_top(there[-1])])}: please report it to its authors."
    if _in_use:
        parts = ", ".join(f"{point.value} of {_package(point)}" for point in _in_use.values())
        return f"This is a bug in fedstein, or in a part from elsewhere that is in use: {parts}. Please report it."
    return "This is a bug in fedstein: please report it."


def _top(module: str) -> str:
    return module.partition(".")[0]


def _package(point: EntryPoint) -> str:
    return "a package without a name" if point.dist is None else f"{point.dist.name} {point.dist.version}"
