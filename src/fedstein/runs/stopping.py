"""Stopping after a round: what a signal asks for, and where it is done."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

from fedstein.protocol.state import State, Told

__all__ = ["StopAfterRound"]


class StopAfterRound:
    """The first Ctrl-C (or SIGTERM) ends the training after the round that is under way, the second one at once.

    A watcher, and the last of them, so that all others have seen the round.

    Args:
        say: where the words go that answer the first signal.
        begun: whether there is anything to keep yet. Until then (data is loaded, a network pre-trained) the first
            signal ends it at once: nobody waits for a round that is far away.
    """

    def __init__(self, say: Callable[[str], None], begun: Callable[[], bool] = lambda: True) -> None:
        self._asked, self._say, self._begun = False, say, begun
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self._asked or not self._begun():
            raise KeyboardInterrupt
        self._asked = True
        self._say("stopping after this round; once more to stop at once")

    def after_round(self, state: State, told: Told) -> None:
        """The place to stop."""
        if self._asked:
            raise KeyboardInterrupt
