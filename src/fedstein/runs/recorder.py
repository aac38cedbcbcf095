"""The recorder: writes a run folder while a run is under way, so that it can go on after any stop.

What is in a run folder: `store/__init__.py`.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import torch

from fedstein.data.sources.contents import Digests
from fedstein.devices import CPU
from fedstein.errors import RunError, UserError
from fedstein.protocol.state import State, Told
from fedstein.runs.data_record import keep_data
from fedstein.runs.folder import load_run_config, recorded_config
from fedstein.runs.given import Given, keep_digests
from fedstein.runs.network_files import NetworkFiles, keep
from fedstein.settings import MOST_ROUNDS, Config, to_table, to_toml
from fedstein.store import checkpoints
from fedstein.store.agent_files import AgentFiles
from fedstein.store.checkpoints import checkpoint_rounds
from fedstein.store.environment import environment, unlike
from fedstein.store.files import Lines, to_json, write
from fedstein.store.journal import Journal, erasures_of, read_journal
from fedstein.store.lineage import Lineage, load_lineage, save_lineage
from fedstein.store.lock import take_lock
from fedstein.store.metrics_log import lines_in_order, metrics_line, told_in
from fedstein.store.turn_files import TurnFiles

__all__ = ["Recorder", "check_rounds", "hold"]

ROUNDS, SECONDS, SHARE = 50, 120.0, 0.03  # between checkpoints, and what they may cost, if the config does not say


class Recorder:
    """Writes a run folder, which is this process's alone: a watcher of the training, and its journal.

    Use `Recorder.create` or `Recorder.resume`, as a context manager.
    """

    def __init__(self, path: Path, config: Config, lineage: Lineage, lock: int, device: torch.device = CPU) -> None:
        self.path, self.config, self.lineage = path, config, lineage
        self._device = device  # on which it is computed from now on
        self.told = Told()  # of the last round that is on disk
        self._lock = lock
        self._state: State | None = None
        self._finished = False
        self._saved = -1  # the round of the newest checkpoint
        self._agents = AgentFiles(path)
        self._turns = TurnFiles(path)
        self._began, self._seconds_before = time.perf_counter(), 0.0
        self._worked_until = self._began  # the end of the last round
        self._saved_at, self._seconds_per_byte = self._began, 0.0  # of the last checkpoint
        self.journal = Journal(path)
        self.metrics = Lines(path / "metrics.jsonl")

    @classmethod
    def create(
        cls,
        path: Path,
        config: Config,
        lineage: Lineage = Lineage(),  # noqa: B008  (frozen)
        files: NetworkFiles = NetworkFiles(),  # noqa: B008  (frozen)
        given: Given | None = None,
        device: torch.device = CPU,
        data: Digests = MappingProxyType({}),
    ) -> Recorder:
        """A new run folder.

        Args:
            path: where; a new or empty folder.
            config: every setting.
            lineage: the erasures behind the model.
            files: what it keeps of the network, so that it hangs on no other run or file.
            given: what was given in Python.
            device: on which it is computed, for the record.
            data: SHA-256 of the files of the data, by whose they are.
        """
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            if not path.is_dir():
                raise UserError(f"The '--out' must be a new folder. {path} exists already and is none.") from None
            if (path / "config.toml").is_file():
                raise UserError(
                    f"The run folder {path} exists already. Choose another '--out', delete it, or go on with "
                    f"'fedstein resume {path}'."
                ) from None
            if any(path.iterdir()):
                raise UserError(
                    f"The '--out' must be a new or empty folder. {path} is neither, and no run folder."
                ) from None
        except OSError as error:
            raise UserError(f"Cannot make the run folder {path}: {error.strerror}.") from error
        with _writing(path):
            lock = take_lock(path)
            keep(path, files, config)
            if given is not None:
                keep_digests(path, given)
            keep_data(path, data)
            write(path / "environment.json", to_json(environment(config.threads, device), indent=2).encode())
            save_lineage(path, lineage)
            write(path / "config.toml", to_toml(config).encode())
            run = cls(path, config, lineage, lock, device)
            run._note_start()
            run.journal.sync()
        return run

    @classmethod
    def resume(cls, path: Path, rounds: int | None = None, device: torch.device = CPU) -> tuple[Recorder, State | None]:
        """An existing run folder and the state to go on from; None if it was stopped before the first checkpoint.

        Args:
            path: the run folder.
            rounds: extend the run to so many rounds.
            device: on which it is computed from now on, for the record.

        Raises:
            UserError: no run folder, in use, its config was edited, or no checkpoint can be used.
        """
        if rounds is not None and not 1 <= rounds <= MOST_ROUNDS:
            raise UserError(f"The '--rounds' must be in 1..{MOST_ROUNDS}. Got {rounds} instead.")
        config = load_run_config(path, careful=False)
        with _writing(path):
            run = cls(path, config, load_lineage(path), take_lock(path), device)
        try:
            with _writing(path):
                return run, run._go_on(rounds)
        except BaseException:
            run.close()
            raise

    def _go_on(self, rounds: int | None) -> State | None:
        self._refuse_another_config()
        if asked := erasures_of(self.path):
            request = asked[-1]
            raise UserError(
                f"Agents {', '.join(map(str, request['agents']))} of run '{self.path}' asked to be forgotten: it "
                f"cannot go on with them. What goes on without is {request['out']}."
            )
        state = self._newest_state()
        done = 0 if state is None else state.round
        if rounds is not None:
            check_rounds(rounds, done, self.config.rounds, self.lineage)
        if rounds is not None and rounds != self.config.rounds:
            # The journal first: a stop between the two must not look like an edited config.
            self.journal.note("extended", rounds=rounds)
            self.journal.sync()
            self.config = self.config.lengthened(rounds)
            write(self.path / "config.toml", to_toml(self.config).encode())
        self._tidy(done)
        before = next((event.get("environment") for event in read_journal(self.path) if "environment" in event), None)
        now = environment(self.config.threads, self._device)
        for line in unlike(before, now):
            warnings.warn(f"{line}: the result may differ in its last bits from an uninterrupted run.", stacklevel=2)
        self.journal.note("resumed", round=done, environment=now)
        return state

    def _refuse_another_config(self) -> None:
        wanted = recorded_config(self.path)
        if wanted is None:
            if checkpoint_rounds(self.path):
                warnings.warn(
                    f"The journal of run '{self.path}' has lost its beginning: an edited config would not be noticed.",
                    stacklevel=2,
                )
            self._note_start()
            return
        expected, before = wanted.config, wanted.rounds_before
        if self.config.rounds in before:  # an extension that was cut short before config.toml was written
            self.config = self.config.lengthened(expected["rounds"])
            write(self.path / "config.toml", to_toml(self.config).encode())
        if changed := wanted.edits(self.config, self.lineage):
            raise UserError(
                f"The config of run '{self.path}' was edited since it began:\n  "
                + "\n  ".join(changed)
                + "\nPut it back to go on ('--rounds N' extends a run), or start a new run with "
                f"'fedstein train {self.path / 'config.toml'} --out NEW'."
            )

    def _note_start(self) -> None:
        now = environment(self.config.threads, self._device)
        history = {"lineage": self.lineage.table()} if self.lineage else {}
        self.journal.note("started", config=to_table(self.config), **history, environment=now)

    def _newest_state(self) -> State | None:
        """The state of the newest checkpoint that is whole and whose rounds are all in metrics.jsonl."""
        there = checkpoint_rounds(self.path)
        recorded = [line for line, _ in lines_in_order(self.path)]
        for checkpoint in checkpoints.newest(self.path):
            try:
                if isinstance(checkpoint, UserError):
                    raise checkpoint
                if checkpoint.round > len(recorded):
                    raise UserError(
                        f"metrics.jsonl ends before round {checkpoint.round}: it has {len(recorded)} whole lines."
                    )
                state = checkpoint.state()
            except UserError as error:
                warnings.warn(f"{error} Falling back to the checkpoint before.", stacklevel=2)
                self.journal.note("damaged", reason=str(error))
                continue
            self._state, self._saved, self._seconds_before = state, checkpoint.round, checkpoint.seconds
            self.told = told_in(recorded[state.round - 1]) if state.round else Told()
            return state
        if there or any(event["event"] == "checkpoint" for event in read_journal(self.path)):
            raise UserError(
                f"No checkpoint of run '{self.path}' can be used. Start again with "
                f"'fedstein train {self.path / 'config.toml'} --out NEW'."
            )
        return None

    def _tidy(self, done: int) -> None:
        """Take away what lies behind the checkpoint: it will be done again, with the same result."""
        for name in (
            "result.json",
            *(
                f"{name}.part"
                for name in ("result.json", "config.toml", "environment.json", "lineage.json", "model.json")
            ),
        ):
            (self.path / name).unlink(missing_ok=True)
        for round in checkpoint_rounds(self.path):
            if round > done:
                checkpoints.remove(self.path, round)
        described = {f"round-{round:06d}" for round in checkpoint_rounds(self.path)}
        folder = self.path / "checkpoints"
        halves = [file for file in folder.glob("round-*.safetensors") if file.stem not in described]
        parts = [*folder.glob("*.part"), *(self.path / "agents").glob("*/*.part")]
        for file in [*halves, *parts]:
            file.unlink()
        end = next((end for line, end in lines_in_order(self.path) if line["round"] == done), 0)
        os.truncate(self.path / "metrics.jsonl", end)
        self._agents.tidy()
        self._turns.tidy()
        self._prune()  # a stop between a checkpoint and this

    @property
    def seconds(self) -> float:
        """Of training, in all processes that worked on this run."""
        return self._seconds_before + self._worked_until - self._began

    def note(self, event: str, **about: Any) -> None:
        """Tell the journal."""
        with _writing(self.path):
            self.journal.note(event, **about)

    def after_round(self, state: State, told: Told) -> None:
        """Record a round; make a checkpoint when it is time."""
        self._worked_until = time.perf_counter()
        with _writing(self.path):
            self.metrics.add(metrics_line(state, told))
            shared_out = self.lineage and state.round == self.lineage.newest.last_visit  # all who stay have a portion
            changed = state.memories if shared_out else [upload.agent for upload in told.uploads]
            self._agents.change(changed, state.memories)
            self._state = state
            if self.config.uplink.record_frames:
                for upload, frame in zip(told.uploads, told.frames, strict=False):
                    folder = self.path / "frames" / f"agent-{upload.agent}"  # apart, so that an agent's can be purged
                    folder.mkdir(parents=True, exist_ok=True)
                    (folder / f"round-{state.round:06d}.frame").write_bytes(frame)
            if self._agents.too_much(state.memories):
                self._agents.save(state.memories, state.round)
            if self._is_time(state):
                self._checkpoint(state)

    def save(self, state: State) -> None:
        """Make a checkpoint now, unless there is one of this round."""
        with _writing(self.path):
            self._state = state
            self._checkpoint(state)

    def adopt(self, parent: Path, state: State) -> None:
        """Begin where another run has ended: its metrics, and its state as the first checkpoint of this one."""
        lines = list(lines_in_order(parent))
        if len(lines) < state.round:
            raise UserError(f"The metrics.jsonl of run '{parent}' ends before round {state.round}: it is damaged.")
        with _writing(self.path):
            os.truncate(self.path / "metrics.jsonl", 0)
            for line, _ in lines[: state.round]:
                self.metrics.add(line)
            self._agents.change(state.memories, state.memories)
        self.save(state)

    def finish(self, result: dict[str, Any], reason: str = "finished") -> None:
        """Keep the last state and the final result."""
        assert self._state is not None
        self.save(self._state)
        with _writing(self.path):
            write(self.path / "result.json", to_json(result, indent=2).encode())
            self.journal.note("stopped", round=self._state.round, reason=reason)
            self.journal.sync()
        self._finished = True

    def close(self) -> None:
        """Let go of the folder."""
        self.journal.close()
        self.metrics.close()
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if not self._finished and not isinstance(error, RunError) and self._state is not None:
                self.save(self._state)  # whatever ended it, a divergence included
                reason = "closed" if error is None else str(error) or type(error).__name__
                self.note("stopped", round=self._state.round, reason=reason)
        finally:
            self.close()

    def _size(self, state: State) -> int:
        """Bytes that a checkpoint made now would write."""
        return state.particles.nbytes + self._agents.pending(state.memories) + self._turns.pending(state.turns)

    def _is_time(self, state: State) -> bool:
        """Whether a checkpoint is due. When it is made changes nothing of what is learnt."""
        if every := self.config.recording.checkpoint_every:
            return state.round % every == 0
        elapsed = time.perf_counter() - self._saved_at
        cost = self._seconds_per_byte * self._size(state)
        return (state.round - self._saved >= ROUNDS or elapsed > SECONDS) and cost <= SHARE * elapsed

    def _checkpoint(self, state: State) -> None:
        if self._saved == state.round:
            return
        began, size = time.perf_counter(), self._size(state)
        self._agents.save(state.memories, state.round)
        self.metrics.sync()  # a checkpoint never knows of more rounds than the metrics do
        self.journal.sync()
        (self.path / "checkpoints").mkdir(exist_ok=True)
        turns = self._turns.save(state.turns, state.round)
        checkpoints.save(self.path, state, self.seconds, self._agents.newest(state.memories), turns)
        self._saved = state.round
        self.journal.note("checkpoint", round=state.round)
        self._prune()
        self._agents.rest(state.memories)
        self._saved_at = time.perf_counter()
        self._seconds_per_byte = (self._saved_at - began) / size

    def _prune(self) -> None:
        """Forget all but the newest checkpoints, and the agents' files that none of them needs."""
        there = checkpoint_rounds(self.path)
        keep = there[-self.config.recording.keep_checkpoints :]
        for round in there[: len(there) - len(keep)]:
            checkpoints.remove(self.path, round)
        if keep:
            self._agents.prune(keep[0])
            self._turns.prune(keep[0])


def check_rounds(
    rounds: int,
    done: int,
    planned: int,
    lineage: Lineage = Lineage(),  # noqa: B008  (frozen)
) -> None:
    """Refuse to go on to fewer rounds than are done or than an erasure takes; warn of fewer than were planned.

    Args:
        rounds: that the run is to have.
        done: that it has.
        planned: that it was to have so far.
        lineage: the erasures behind it.
    """
    if rounds < done:
        raise UserError(
            f"The '--rounds' must be at least the {done} that are done, of {planned} that the run is set to. "
            f"Got {rounds} instead."
        )
    if lineage.asked and rounds < lineage.newest.end:
        raise UserError(
            f"The '--rounds' must be at least the {lineage.newest.end} after which the erasure is complete. "
            f"Got {rounds} instead."
        )
    if rounds < planned:
        warnings.warn(f"The run was set to {planned} rounds: from now on it ends after {rounds}.", stacklevel=3)


@contextmanager
def hold(path: Path) -> Iterator[Journal]:
    """Keep every other process from writing to a run folder, and write to its journal."""
    with _writing(path):
        lock = take_lock(path)
    try:
        with _writing(path):
            journal = Journal(path)
        try:
            yield journal
        finally:
            journal.close()
    finally:
        os.close(lock)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """What the disk says, in words."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"Cannot write to the run folder {path}: {error.strerror}. What was saved is kept: "
            f"make room or put it right, and go on with 'fedstein resume {path}'."
        ) from error
