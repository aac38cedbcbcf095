"""Who looks on while a verb works: is told in words what is about to be done, and watches the rounds."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from fedstein.protocol.state import State, Told
from fedstein.trackers import Watcher

__all__ = ["Onlooker"]


class _Nobody:
    def after_round(self, state: State, told: Told) -> None:
        """Nothing is shown."""


class Onlooker:
    """Sees nothing, and shows nothing. A terminal or a notebook has one that does."""

    def say(self, text: str) -> None:
        """A line for people."""

    def watching(self, title: str, rounds: int) -> AbstractContextManager[Watcher]:
        """A watcher for so many rounds of what `title` says."""
        return nullcontext(_Nobody())
