"""Turn means as files: RUN/checkpoints/turn-N.safetensors, N the last round of the turn.

Each is written once, with the first checkpoint after its turn, and stays as long as a checkpoint needs it. Means that
would not fit into memory all at once rest on disk.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from fedstein.posterior import Turns
from fedstein.store import checkpoints
from fedstein.store.checkpoints import Checkpoint, KeptTurn, turn_file
from fedstein.store.files import load_tensors, save_tensors

__all__ = ["MEMORY", "TurnFiles"]

MEMORY = 1 << 30  # bytes of turn means that may stay in memory


class TurnFiles:
    """The turn means of a run folder, and which checkpoint needs which."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._there: dict[int, KeptTurn] = {}  # by their last round
        self._needed: dict[int, list[KeptTurn]] = {}  # by the round of the checkpoint

    def pending(self, turns: Turns) -> int:
        """Bytes that are not on disk yet."""
        return sum(turn.slot.bytes for turn in turns.whole if turn.last not in self._there)

    def save(self, turns: Turns, round: int) -> list[KeptTurn]:
        """Write what is new; what the checkpoint of a round needs."""
        for turn in turns.whole:
            if turn.last not in self._there:
                path = turn_file(self._run, turn.last)
                digest = save_tensors(path, turn.slot.get())
                turn.slot.rests(partial(load_tensors, path))
                self._there[turn.last] = KeptTurn(turn.first, turn.last, digest)
        if sum(turn.slot.bytes for turn in turns.whole) > MEMORY:
            for turn in turns.whole:
                turn.slot.let_go()
        self._needed[round] = [self._there[turn.last] for turn in turns.whole]
        return self._needed[round]

    def prune(self, oldest: int) -> None:
        """Delete what no checkpoint from round `oldest` on needs."""
        self._needed = {round: kept for round, kept in self._needed.items() if round >= oldest}
        needed = {turn.last for kept in self._needed.values() for turn in kept}
        for last in set(self._there) - needed:
            turn_file(self._run, last).unlink(missing_ok=True)
            del self._there[last]

    def tidy(self) -> None:
        """After a stop: know the files that checkpoints name, and delete all others."""
        found = [one for one in checkpoints.newest(self._run) if isinstance(one, Checkpoint)]
        self._needed = {one.round: list(one.turns.whole) for one in found}
        self._there = {turn.last: turn for kept in self._needed.values() for turn in kept}
        for file in (self._run / "checkpoints").glob("turn-*.safetensors"):
            if file not in {turn_file(self._run, last) for last in self._there}:
                file.unlink()
