"""The exceptions of fedstein. Few on purpose: what a caller can act on differs, nothing else."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "DivergedError",
    "FedsteinError",
    "OrderError",
    "PayloadError",
    "RunError",
    "SilenceError",
    "UserError",
    "like",
    "nearest",
]


class FedsteinError(Exception):
    """Anything fedstein raises on purpose."""


class UserError(FedsteinError, ValueError):
    """A mistake in what the user gave: an argument, a config key, a file. Exit code 2."""


class OrderError(UserError):
    """An order that an agent cannot follow. The server reads the text: it says nothing of the agent's data or disk."""


class PayloadError(FedsteinError, ValueError):
    """Bytes from an agent that are no frame of this contract. Nothing of them is applied."""


class DivergedError(FedsteinError, ArithmeticError):
    """Particles became non-finite. The last good state is kept. Exit code 1."""


class RunError(FedsteinError, OSError):
    """A run folder cannot be written to: a full disk, no permission. What was saved is kept. Exit code 1."""


class SilenceError(FedsteinError):
    """Agents elsewhere do not answer any more. What was learnt is kept. Exit code 1."""


def nearest(word: str, known: Iterable[str]) -> str:
    """A sentence that names the known word most like `word`, or lists them all.

    >>> nearest("partition_", ["partition", "agents"])
    "Did you mean 'partition'?"
    >>> nearest("zzz", ["b", "a"])
    'Known: a, b.'
    """
    names = sorted(known)
    return like(word, names).strip() or f"Known: {', '.join(names)}."


def like(word: str, known: Iterable[str]) -> str:
    """The same after another sentence, or nothing where none is like it: for names that are too many to list."""
    close = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f" Did you mean '{close[0]}'?" if close else ""
