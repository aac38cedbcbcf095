"""Checkpoints: all that is needed to go on as if nothing had happened.

    RUN/checkpoints/round-000150.safetensors    the particles, and the mean over the turn under way
    RUN/checkpoints/turn-000140.safetensors     the mean over the turn that ended with round 140
    RUN/checkpoints/round-000150.json           round, bills, and the SHA-256 of every file that belongs to it
    RUN/agents/agent-3/round-000148.safetensors what agent 3 kept after round 148, apart so that it can be purged

The JSON file is written last, in one step, with a check of its own: a checkpoint is there or it is not. An agent's
file is written only when what it keeps has changed, so a checkpoint costs what has changed since the last one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from fedstein.errors import UserError
from fedstein.posterior import MEAN, Turn, Turns
from fedstein.protocol.memories import Memories
from fedstein.protocol.messages import Outcome
from fedstein.protocol.state import State, Totals
from fedstein.slots import Slot
from fedstein.store.files import check_sha256, load_tensor, load_tensors, save_tensors, to_json, write

__all__ = [
    "Checkpoint",
    "KeptTurn",
    "KeptTurns",
    "agent_file",
    "checkpoint_rounds",
    "newest",
    "read",
    "remove",
    "save",
    "turn_file",
]

VERSION = 2
_TURN = "turn"  # the name of the mean over the turn under way


@dataclass(frozen=True)
class KeptTurn:
    """A whole turn: its rounds, and the SHA-256 of the file with its mean."""

    first: int
    last: int
    sha256: str


@dataclass(frozen=True)
class KeptTurns:
    """What a checkpoint says of the turns (`posterior/turns.py`)."""

    whole: tuple[KeptTurn, ...] = ()
    count: int = 0
    visits: int = 0
    first: int = 0
    rounds: int = 0


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint of a run folder, as its JSON file describes it."""

    run: Path
    round: int
    seconds: float  # of training up to here
    totals: Totals
    particles_sha256: str
    outcomes: dict[int, Outcome]  # the last visit of each agent that remembers for itself
    agents: dict[int, tuple[int, str]]  # the round after which each agent's file was written, and its SHA-256
    turns: KeptTurns = KeptTurns()

    @property
    def particles_file(self) -> Path:
        """Where the particles are."""
        return _stem(self.run, self.round).with_suffix(".safetensors")

    def particles(self) -> Tensor:
        """(N_p, d)."""
        check_sha256(self.particles_file, self.particles_sha256)
        return _whole_vectors(self.particles_file, "particles")

    def state(self) -> State:
        """The state to go on from; agents' memories are checked now and loaded when they are needed."""
        kept = {}
        for agent, (round, digest) in self.agents.items():
            path = agent_file(self.run, agent, round)
            check_sha256(path, digest)
            kept[agent] = Slot(load=partial(load_tensors, path))
        return replace(self.learnt(), memories=Memories(kept))

    def learnt(self) -> State:
        """The same without what agents keep: enough to look at it."""
        particles = self.particles()
        return State(self.round, particles, totals=self.totals, outcomes=self.outcomes, turns=self._way(particles))

    def _way(self, particles: Tensor) -> Turns:
        kept, whole = self.turns, []
        for turn in kept.whole:
            path = turn_file(self.run, turn.last)
            check_sha256(path, turn.sha256)
            slot = Slot({MEAN: _whole_vectors(path, MEAN)})
            slot.rests(partial(load_tensors, path))
            whole.append(Turn(turn.first, turn.last, slot))
            if whole[-1].mean().shape != particles.shape:
                raise UserError(f"The file {path} is damaged: it is not of these particles.")
        mean = load_tensor(self.particles_file, _TURN) if kept.rounds else None
        if mean is not None and mean.shape != particles.shape:
            raise UserError(f"The file {self.particles_file} is damaged: '{_TURN}' is not of these particles.")
        return Turns(tuple(whole), kept.count, kept.visits, kept.first, kept.rounds, mean)


def save(
    run: Path, state: State, seconds: float, agents: dict[int, tuple[int, str]], turns: Sequence[KeptTurn] = ()
) -> None:
    """Make a checkpoint; the files of agents and turns are there already."""
    stem, way = _stem(run, state.round), state.turns
    tensors = {"particles": state.particles} | ({} if way.mean is None else {_TURN: way.mean.clone()})
    content = {
        "version": VERSION,
        "round": state.round,
        "seconds": round(seconds, 3),
        "totals": asdict(state.totals),
        "particles": save_tensors(stem.with_suffix(".safetensors"), tensors),
        "agents": {str(agent): list(version) for agent, version in agents.items()},
    }
    if state.outcomes:
        content["applied"] = {str(agent): list(visit) for agent, visit in state.outcomes.items()}
    if way != Turns():
        content["turns"] = asdict(KeptTurns(tuple(turns), way.count, way.visits, way.first, way.rounds))
    write(stem.with_suffix(".json"), to_json(content | {"check": _check(content)}).encode())


def read(run: Path, round: int) -> Checkpoint:
    """The checkpoint of a round. A UserError says what is wrong with it."""
    path = _stem(run, round).with_suffix(".json")
    try:
        content = json.loads(path.read_bytes())
        check = content.pop("check")
        if check != _check(content) or content["version"] != VERSION or content["round"] != round:
            raise ValueError
        return Checkpoint(
            run=run,
            round=round,
            seconds=float(content["seconds"]),
            totals=Totals(**content["totals"]),
            particles_sha256=content["particles"],
            outcomes={
                int(agent): Outcome(int(at), float(share)) for agent, (at, share) in content.get("applied", {}).items()
            },
            agents={int(agent): (int(at), str(digest)) for agent, (at, digest) in content["agents"].items()},
            turns=_turns(content.get("turns", {})),
        )
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror}.") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UserError(f"The file {path} is damaged: it is not the JSON that was written.") from error


def _turns(content: dict[str, Any]) -> KeptTurns:
    numbers = {key: int(value) for key, value in content.items() if key != "whole"}
    whole = [KeptTurn(int(one["first"]), int(one["last"]), str(one["sha256"])) for one in content.get("whole", [])]
    return KeptTurns(tuple(whole), **numbers)


def newest(run: Path) -> Iterator[Checkpoint | UserError]:
    """The checkpoints, newest first; an error stands for one that cannot be read."""
    for round in reversed(checkpoint_rounds(run)):
        try:
            yield read(run, round)
        except UserError as error:
            yield error


def checkpoint_rounds(run: Path) -> list[int]:
    """The rounds of which there is a checkpoint, whole or not."""
    stems = [path.stem.removeprefix("round-") for path in (run / "checkpoints").glob("round-*.json") if path.is_file()]
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def remove(run: Path, round: int) -> None:
    """Take a checkpoint away: first that it is one, then its content."""
    _stem(run, round).with_suffix(".json").unlink(missing_ok=True)
    _stem(run, round).with_suffix(".safetensors").unlink(missing_ok=True)


def agent_file(run: Path, agent: int, round: int) -> Path:
    """What an agent kept after a round."""
    return run / "agents" / f"agent-{agent}" / f"round-{round:06d}.safetensors"


def turn_file(run: Path, last: int) -> Path:
    """The mean over the turn that ended with a round."""
    return run / "checkpoints" / f"turn-{last:06d}.safetensors"


def _whole_vectors(path: Path, name: str) -> Tensor:
    """(N_p, d)."""
    vectors = load_tensor(path, name)
    if vectors.dim() != 2 or vectors.numel() == 0:
        raise UserError(f"The file {path} is damaged: it does not hold (N_p, d) particles.")
    return vectors


def _stem(run: Path, round: int) -> Path:
    return run / "checkpoints" / f"round-{round:06d}"


def _check(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
