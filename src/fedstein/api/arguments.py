"""Arguments of a call from Python: one of the wrong kind is refused in plain words, before anything is done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike as OsPath
from pathlib import Path
from reprlib import Repr
from typing import Any

import torch

from fedstein.errors import UserError

__all__ = ["PathLike", "as_device", "as_list", "as_overrides", "as_path", "check_whole", "maybe_path", "refuse"]

PathLike = str | Path

_short = Repr()  # nobody's examples in a message, and no message of a thousand lines
_short.maxstring = _short.maxother = 80


def refuse(name: str, wanted: str, came: Any) -> UserError:
    """What to raise: which argument, what was expected, what came.

    Args:
        name: of the argument.
        wanted: what it must be, and how to give it.
        came: instead.
    """
    return UserError(f"The '{name}' must be {wanted}. Got {_short.repr(came)} instead.")


def as_path(name: str, value: Any, what: str = "a path") -> Path:
    """A path, given as text or as a `Path`.

    Args:
        name: of the argument.
        value: what was given.
        what: it leads to, for the message.
    """
    if not isinstance(value, str | OsPath) or "\0" in str(value):
        raise refuse(name, f"{what}, as text or as a pathlib.Path", value)
    return Path(value)


def maybe_path(name: str, value: Any, what: str = "a path") -> Path | None:
    """The same, or nothing where nothing was given.

    Args:
        name: of the argument.
        value: what was given.
        what: it leads to, for the message.
    """
    return None if value is None else as_path(name, value, what)


def check_whole(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Refuse what is no whole number within its limits.

    Args:
        name: of the argument.
        value: what was given.
        least: that it may be.
        most: that it may be; no limit if left out.
    """
    if type(value) is not int or value < least or (most is not None and value > most):
        limits = f"at least {least}" if most is None else f"in {least}..{most}"
        raise refuse(name, f"a whole number, {limits}", value)


def as_list(name: str, value: Any, wanted: str) -> list[Any]:
    """Several things, in a list or whatever else has them one after the other; a text is one thing.

    Args:
        name: of the argument.
        value: what was given.
        wanted: what it must be, with an example.
    """
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise refuse(name, wanted, value)
    return list(value)


def as_device(value: Any) -> Any:
    """A device by its name, also where one of torch's own was given; whether it is here is not looked at."""
    return str(value) if isinstance(value, torch.device) else value


def as_overrides(value: Any) -> list[str]:
    """Overrides of config keys."""
    wanted = "texts like 'rounds=20', dotted.key=value"
    texts: list[str] = as_list("overrides", value, f"a list of {wanted}")
    for text in texts:
        if not isinstance(text, str):
            raise refuse("overrides", wanted, text)
    return texts
