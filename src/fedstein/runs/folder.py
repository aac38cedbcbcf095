"""The run folder: all that a run leaves behind, and all that it needs to go on.

    RUN/config.toml         every setting, defaults included; `fedstein train RUN/config.toml` repeats the run
    RUN/environment.json    versions, machine and threads
    RUN/metrics.jsonl       one JSON object for each round: bills, and metrics where it was evaluated (docs/runs.md)
    RUN/journal.jsonl       what happened, in order (runs/journal.py)
    RUN/checkpoints/        the particles of the last few checkpoints (runs/checkpoints.py)
    RUN/agents/agent-K/     what agent K keeps (site, local particles, residual): delete it to purge the agent
    RUN/frames/agent-K/     the frames themselves, if uplink.record_frames is set
    RUN/features.safetensors  the frozen network before a last layer, if model.features was set
    RUN/result.json         the final result, as `fedstein train --json` prints it
    RUN/lock                held by the process that writes here

The metrics are a pure function of the config: they have no times in them, and a run that was killed and resumed has
the same lines as one that was not.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
import tomllib
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch import Tensor

from fedstein.config import MOST_ROUNDS, Config, differences, make_config, to_table, to_toml
from fedstein.engines import State
from fedstein.errors import RunError, UserError
from fedstein.problem import Metrics
from fedstein.runs import checkpoints
from fedstein.runs.checkpoints import Checkpoint, agent_file, checkpoint_rounds
from fedstein.runs.environment import environment, unlike
from fedstein.runs.files import Lines, load_tensors, read_lines, save_tensors, to_json, write
from fedstein.runs.journal import Journal, read_journal
from fedstein.uplink import Upload

__all__ = [
    "RunFolder",
    "edits",
    "erasures_of",
    "hold",
    "in_use",
    "is_half_made",
    "is_metrics",
    "is_remote",
    "load_checkpoint",
    "load_particles",
    "load_run_config",
    "load_state",
    "purge",
    "read_metrics",
    "take_lock",
]

MEMORY = 1 << 30  # bytes of agents' memories that may stay in memory
ROUNDS, SECONDS, SHARE = 50, 120.0, 0.03  # between checkpoints, and what they may cost, if the config does not say


_NUMBERS = {field.name for field in fields(Upload) if field.name != "budget_bits"}


class RunFolder:
    """A run folder that this process alone writes to: a watcher of the training, and its journal.

    Use `RunFolder.create` or `RunFolder.resume`, as a context manager.
    """

    def __init__(self, path: Path, config: Config, lock: int) -> None:
        self.path, self.config = path, config
        self._lock = lock
        self._state: State | None = None
        self._finished = False
        self._saved = -1  # the round of the newest checkpoint
        self._changed: set[int] = set()  # agents whose memory is not on disk yet
        self._agents: dict[int, list[tuple[int, str]]] = {}  # round and SHA-256 of each agent's files, oldest first
        self._began, self._seconds_before = time.perf_counter(), 0.0
        self._worked_until = self._began  # the end of the last round
        self._saved_at, self._seconds_per_byte = self._began, 0.0  # of the last checkpoint
        self.journal = Journal(path)
        self.metrics = Lines(path / "metrics.jsonl")

    @classmethod
    def create(cls, path: Path, config: Config, features: Tensor | None = None) -> RunFolder:
        """A new run folder. `features` is the frozen particle, kept so that this run does not hang on another one."""
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            if not path.is_dir():
                raise UserError(f"The '--out' must be a new folder. {path} exists already and is none.") from None
            if any(path.iterdir()):
                raise UserError(
                    f"The run folder {path} exists already. Choose another '--out', delete it, or go on with "
                    f"'fedstein resume {path}'."
                ) from None
        except OSError as error:
            raise UserError(f"Cannot make the run folder {path}: {error.strerror}.") from error
        with _writing(path):
            lock = take_lock(path)
            if features is not None:
                save_tensors(path / "features.safetensors", {"features": features})
            write(path / "environment.json", to_json(environment(config.threads), indent=2).encode())
            write(path / "config.toml", to_toml(config).encode())
            run = cls(path, config, lock)
            run.journal.note("started", config=to_table(config), environment=environment(config.threads))
            run.journal.sync()
        return run

    @classmethod
    def resume(cls, path: Path, rounds: int | None = None) -> tuple[RunFolder, State | None]:
        """An existing run folder and the state to go on from; None if it was stopped before the first checkpoint.

        Args:
            path: the run folder.
            rounds: extend the run to so many rounds.

        Raises:
            UserError: no run folder, in use, its config was edited, or no checkpoint can be used.
        """
        if rounds is not None and not 1 <= rounds <= MOST_ROUNDS:
            raise UserError(f"The '--rounds' must be in 1..{MOST_ROUNDS}. Got {rounds} instead.")
        config = load_run_config(path, careful=False)
        with _writing(path):
            run = cls(path, config, take_lock(path))
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
        if rounds is not None and rounds < done:
            raise UserError(f"The '--rounds' must be at least the {done} that are done. Got {rounds} instead.")
        if rounds is not None and rounds != self.config.rounds:
            # The journal first: a stop between the two must not look like an edited config.
            self.journal.note("extended", rounds=rounds)
            self.journal.sync()
            self.config = self.config.model_copy(update={"rounds": rounds})
            write(self.path / "config.toml", to_toml(self.config).encode())
        self._tidy(done)
        before = next((event.get("environment") for event in read_journal(self.path) if "environment" in event), None)
        now = environment(self.config.threads)
        for line in unlike(before, now):
            warnings.warn(f"{line}: the result may differ in its last bits from an uninterrupted run.", stacklevel=2)
        self.journal.note("resumed", round=done, environment=now)
        return state

    def _refuse_another_config(self) -> None:
        wanted = _recorded_config(self.path)
        if wanted is None:
            if checkpoint_rounds(self.path):
                warnings.warn(
                    f"The journal of run '{self.path}' has lost its beginning: an edited config would not be noticed.",
                    stacklevel=2,
                )
            now = environment(self.config.threads)
            self.journal.note("started", config=to_table(self.config), environment=now)
            return
        expected, before = wanted
        if self.config.rounds in before:  # an extension that was cut short before config.toml was written
            self.config = self.config.model_copy(update={"rounds": expected["rounds"]})
            write(self.path / "config.toml", to_toml(self.config).encode())
        if changed := differences(expected, to_table(self.config)):
            raise UserError(
                f"The config of run '{self.path}' was edited since it began:\n  "
                + "\n  ".join(changed)
                + "\nPut it back to go on ('--rounds N' extends a run), or start a new run with "
                f"'fedstein train {self.path / 'config.toml'} --out NEW'."
            )

    def _newest_state(self) -> State | None:
        """The state of the newest checkpoint that is whole and whose rounds are all in metrics.jsonl."""
        there = checkpoint_rounds(self.path)
        recorded = len(list(_in_order(self.path)))
        for found in checkpoints.newest(self.path):
            try:
                if isinstance(found, UserError):
                    raise found
                if found.round > recorded:
                    raise UserError(f"metrics.jsonl ends before round {found.round}: it has {recorded} whole lines.")
                state = found.state()
            except UserError as error:
                warnings.warn(f"{error} Falling back to the checkpoint before.", stacklevel=2)
                self.journal.note("damaged", reason=str(error))
                continue
            self._state, self._saved, self._seconds_before = state, found.round, found.seconds
            return state
        if there or any(event["event"] == "checkpoint" for event in read_journal(self.path)):
            raise UserError(
                f"No checkpoint of run '{self.path}' can be used. Start again with "
                f"'fedstein train {self.path / 'config.toml'} --out NEW'."
            )
        return None

    def _tidy(self, done: int) -> None:
        """Take away what lies behind the checkpoint: it will be done again, with the same result."""
        for name in ("result.json", *(f"{name}.part" for name in ("result.json", "config.toml", "environment.json"))):
            (self.path / name).unlink(missing_ok=True)
        for round in checkpoint_rounds(self.path):
            if round > done:
                checkpoints.remove(self.path, round)
        described = {f"round-{round:06d}" for round in checkpoint_rounds(self.path)}
        halves = [file for file in (self.path / "checkpoints").glob("*.safetensors") if file.stem not in described]
        parts = [*(self.path / "checkpoints").glob("*.part"), *(self.path / "agents").glob("*/*.part")]
        for file in [*halves, *parts]:
            file.unlink()
        end = next((end for line, end in _in_order(self.path) if line["round"] == done), 0)
        os.truncate(self.path / "metrics.jsonl", end)
        versions: dict[int, set[tuple[int, str]]] = {}
        for checkpoint in checkpoints.newest(self.path):
            if isinstance(checkpoint, Checkpoint):
                for agent, version in checkpoint.agents.items():
                    versions.setdefault(agent, set()).add(version)
        self._agents = {agent: sorted(found) for agent, found in versions.items()}
        needed = {agent_file(self.path, agent, round) for agent, found in versions.items() for round, _ in found}
        for file in (self.path / "agents").glob("agent-*/round-*.safetensors"):
            if file not in needed:
                file.unlink()
        self._prune()  # a stop between a checkpoint and this

    @property
    def seconds(self) -> float:
        """Of training, in all processes that worked on this run."""
        return self._seconds_before + self._worked_until - self._began

    def note(self, event: str, **about: Any) -> None:
        """Tell the journal."""
        with _writing(self.path):
            self.journal.note(event, **about)

    def after_round(self, state: State, metrics: Metrics | None) -> None:
        """Record a round; make a checkpoint when it is time."""
        self._worked_until = time.perf_counter()
        with _writing(self.path):
            self.metrics.add(_line(state, metrics))
            self._changed |= {upload.agent for upload in state.uploads if state.memories.get(upload.agent)}
            if self.config.erasures and state.round == self.config.erasures[-1].start + self.config.erasures[-1].rounds:
                self._changed = set(state.memories)  # those who stay have got a share
            self._changed = {agent for agent in self._changed if agent in state.memories}  # some were forgotten since
            self._state = state
            if self.config.uplink.record_frames:
                for upload, frame in zip(state.uploads, state.frames, strict=False):
                    folder = self.path / "frames" / f"agent-{upload.agent}"  # apart, so that an agent's can be purged
                    folder.mkdir(parents=True, exist_ok=True)
                    (folder / f"round-{state.round:06d}.frame").write_bytes(frame)
            if self._pending(state) > MEMORY:
                self._save_agents(state)
            if self._is_time(state):
                self._checkpoint(state)

    def save(self, state: State) -> None:
        """Make a checkpoint now, unless there is one of this round."""
        with _writing(self.path):
            self._state = state
            self._checkpoint(state)

    def adopt(self, parent: Path, state: State) -> None:
        """Begin where another run has ended: its metrics, and its state as the first checkpoint of this one."""
        lines = list(_in_order(parent))
        if len(lines) < state.round:
            raise UserError(f"The metrics.jsonl of run '{parent}' ends before round {state.round}: it is damaged.")
        with _writing(self.path):
            os.truncate(self.path / "metrics.jsonl", 0)
            for line, _ in lines[: state.round]:
                self.metrics.add(line)
            self._changed = set(state.memories)
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

    def _pending(self, state: State) -> int:
        """Bytes of agents' memories that are not on disk yet."""
        return sum(state.memories.kept[agent].bytes for agent in self._changed)

    def _is_time(self, state: State) -> bool:
        """Whether a checkpoint is due. When it is made changes nothing of what is learnt."""
        if every := self.config.recording.checkpoint_every:
            return state.round % every == 0
        elapsed = time.perf_counter() - self._saved_at
        cost = self._seconds_per_byte * (state.particles.nbytes + self._pending(state))
        return (state.round - self._saved >= ROUNDS or elapsed > SECONDS) and cost <= SHARE * elapsed

    def _checkpoint(self, state: State) -> None:
        if self._saved == state.round:
            return
        began, size = time.perf_counter(), state.particles.nbytes + self._pending(state)
        self._save_agents(state)
        self.metrics.sync()  # a checkpoint never knows of more rounds than the metrics do
        self.journal.sync()
        (self.path / "checkpoints").mkdir(exist_ok=True)
        agents = {agent: found[-1] for agent, found in self._agents.items() if agent in state.memories}
        checkpoints.save(self.path, state, self.seconds, agents)
        self._saved = state.round
        self.journal.note("checkpoint", round=state.round)
        self._prune()
        resident = [state.memories.kept[agent] for agent in self._agents if agent in state.memories]
        if sum(kept.bytes for kept in resident) > MEMORY:
            for kept in resident:
                kept.let_go()
        self._saved_at = time.perf_counter()
        self._seconds_per_byte = (self._saved_at - began) / size

    def _save_agents(self, state: State) -> None:
        def save_one(agent: int) -> tuple[int, str]:
            path = agent_file(self.path, agent, state.round)
            path.parent.mkdir(parents=True, exist_ok=True)
            kept = state.memories.kept[agent]
            digest = save_tensors(path, kept.get())
            kept.rests(partial(load_tensors, path))
            return state.round, digest

        changed = sorted(self._changed)
        with ThreadPoolExecutor(4) as pool:  # most of it is waiting for the disk
            for agent, version in zip(changed, pool.map(save_one, changed), strict=True):
                versions = self._agents.setdefault(agent, [])
                versions[:] = [other for other in versions if other[0] != state.round] + [version]
        if self._pending(state) > MEMORY:
            for agent in changed:
                state.memories.kept[agent].let_go()
        self._changed = set()

    def _prune(self) -> None:
        """Forget all but the newest checkpoints, and the agents' files that none of them needs."""
        there = checkpoint_rounds(self.path)
        keep = there[-self.config.recording.keep_checkpoints :]
        for round in there[: len(there) - len(keep)]:
            checkpoints.remove(self.path, round)
        for agent, versions in self._agents.items():
            while len(versions) > 1 and versions[1][0] <= keep[0]:
                agent_file(self.path, agent, versions.pop(0)[0]).unlink(missing_ok=True)


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


def erasures_of(run: Path) -> list[dict[str, Any]]:
    """The erasures that were requested of a run, as its journal has them, oldest first; and which are `done`."""
    found, done = [], set()
    for event in read_journal(run):
        if event["event"] == "erasure requested" and isinstance(event.get("agents"), list):
            found.append(event | {"out": str(event.get("out"))})
        elif event["event"] == "erasure done":
            done.add(str(event.get("request")))
    return [event | {"done": str(event.get("request")) in done} for event in found]


def purge(run: Path, erased: Iterable[int], keep: int = 0) -> dict[str, int]:
    """Delete what a run folder has of erased agents, and all but the newest `keep` checkpoints.

    With `keep` = 0, for a run that another one goes on from, all of its model goes: what every agent kept, the frozen
    features, audits. Reports go in any case: their table of agents tells which classes an agent had. Purging twice does
    no harm. Links are unlinked, never followed.

    Returns:
        How many files of which kind were deleted.
    """
    found = dict.fromkeys(("agents", "other_agents", "frames", "checkpoints", "reports", "audits", "features"), 0)
    gone = {f"agent-{agent}" for agent in erased}
    for kind in ("agents", "frames", "checkpoints"):
        if (run / kind).is_symlink():
            (run / kind).unlink()
    for folder in sorted((run / "agents").glob("agent-*")):
        if folder.name in gone or keep == 0:
            found["agents" if folder.name in gone else "other_agents"] += _delete(folder)
    for name in sorted(gone):
        found["frames"] += _delete(run / "frames" / name)
    there = checkpoint_rounds(run)
    stems = {f"round-{round:06d}" for round in there[len(there) - keep :]}
    for round in there[: len(there) - keep]:
        checkpoints.remove(run, round)
        found["checkpoints"] += 1
    for file in (run / "checkpoints").glob("round-*"):  # the other half of one whose removal was cut short
        if file.is_file() and file.name.split(".")[0] not in stems:
            file.unlink()
    needed: set[Path] = set()
    for kept in checkpoints.newest(run):
        if isinstance(kept, Checkpoint):
            needed |= {agent_file(run, agent, round) for agent, (round, _) in kept.agents.items()}
    for file in (run / "agents").glob("agent-*/round-*.safetensors"):
        if file not in needed:
            found["other_agents"] += _delete(file)
    found["reports"] = _delete(run / "report.html") + _delete(run / "report-figures")
    if keep == 0:
        found["audits"] = _delete(run / "audit")
        found["features"] = _delete(run / "features.safetensors")
    return found


def _delete(path: Path) -> int:
    """Delete a file, a link or a folder; how many files that were."""
    if path.is_symlink() or path.is_file():
        path.unlink()
        return 1
    if not path.is_dir():
        return 0
    count = sum(1 for file in path.rglob("*") if file.is_file())
    shutil.rmtree(path)
    return count


def edits(run: Path) -> list[str]:
    """How the config of a run differs from what its journal says that it began with; one line a key."""
    recorded = _recorded_config(run)
    now = to_table(load_run_config(run, careful=False))
    return ["the journal has lost its beginning"] if recorded is None else differences(recorded[0], now)


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


def take_lock(path: Path) -> int:
    """The lock of a folder; it ends with the process that holds it, however that ends.

    Raises:
        UserError: another process holds it.
    """
    lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    for wait in (0.0, 0.1, 0.3, None):  # `in_use` holds it for an instant
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if wait is None:
                holder = os.read(lock, 20).decode(errors="replace").strip()
                os.close(lock)
                raise UserError(
                    f"The folder {path} is in use by process {holder}. Wait for it to end, or stop it."
                ) from None
            time.sleep(wait)
    os.truncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    return lock


def in_use(path: Path) -> bool:
    """Whether a process is writing to a run folder now."""
    try:
        lock = os.open(path / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(lock)


def is_remote(run: Path) -> bool:
    """Whether the agents of a run have their data and memories on machines of their own."""
    return (run / "flower.json").is_file()


def is_half_made(path: Path) -> bool:
    """Whether a run folder was stopped before its config was written: nothing in it is of any use."""
    first = {"lock", "environment.json", "features.safetensors", "config.toml"}
    names = {file.name for file in path.iterdir()} if path.is_dir() else {"no folder"}
    return "config.toml" not in names and {name.removesuffix(".part") for name in names} <= first


def _line(state: State, metrics: Metrics | None) -> dict[str, Any]:
    """The line of a round in metrics.jsonl."""
    bills = [asdict(upload) for upload in state.uploads]
    totals = {f"total_{name}": value for name, value in asdict(state.totals).items() if name != "max_upload_bits"}
    return {"round": state.round, "uploads": bills, **totals, **(metrics or {})}


def _in_order(run: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """The lines of metrics.jsonl with the positions of their ends, as long as none is missing."""
    for expected, (line, end) in enumerate(read_lines(run / "metrics.jsonl"), start=1):
        if line.get("round") != expected or not is_metrics(line):
            return
        yield line, end


def is_metrics(line: dict[str, Any]) -> bool:
    """Whether an object has what every line of metrics.jsonl has: somebody may have edited the file."""
    uploads = line.get("uploads")
    return (
        isinstance(uploads, list)
        and all(isinstance(upload, dict) and upload.keys() >= _NUMBERS for upload in uploads)
        and all(isinstance(upload[name], int | float) for upload in uploads for name in _NUMBERS)
        and all(isinstance(upload.get("budget_bits"), int | None) for upload in uploads)
        and all(isinstance(line.get(f"total_{name}"), int) for name in ("uploads", "upload_bits", "download_bits"))
        and all(isinstance(value, int | float | list | None) for value in line.values())
        and all(isinstance(line.get(name), int | float | None) for name in ("accuracy", "nll", "ece", "brier"))
    )


def read_metrics(run: Path) -> Iterator[dict[str, Any]]:
    """The lines of metrics.jsonl, one for each round from the first on; a warning where one of them is damaged."""
    last = end = 0
    for line, place in _in_order(run):
        last, end = line["round"], place
        yield line
    path = run / "metrics.jsonl"
    with suppress(OSError), path.open("rb") as file:
        file.seek(end)
        if b"\n" in file.read(1 << 20):
            warnings.warn(f"The file {path} is damaged after round {last}: nothing beyond it is used.", stacklevel=2)


def _recorded_config(run: Path) -> tuple[dict[str, Any], list[int]] | None:
    """The config as the journal has it, and the rounds that it had before it was extended."""
    events = list(read_journal(run))
    started = next((event.get("config") for event in events if event["event"] == "started"), None)
    if not isinstance(started, dict):
        return None
    asked = [started.get("rounds"), *(event.get("rounds") for event in events if event["event"] == "extended")]
    rounds = [number for number in asked if type(number) is int and 1 <= number <= MOST_ROUNDS]
    return started | {"rounds": rounds[-1] if rounds else None}, rounds[:-1]


def load_run_config(run: Path, careful: bool = True) -> Config:
    """The config that a run was made with; a warning if it was edited since (`careful`)."""
    try:
        config = make_config(tomllib.loads((run / "config.toml").read_text(encoding="utf-8")))
        recorded = _recorded_config(run) if careful else None
        if recorded is not None and (changed := differences(recorded[0], to_table(config))):
            warnings.warn(
                f"The config of run '{run}' was edited since it began ({'; '.join(changed)}): "
                "what you see may not be what it learnt.",
                stacklevel=2,
            )
        return config
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"'{run}' is not a run folder: cannot read its config.toml ({error.strerror}).") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"The config.toml of run '{run}' is damaged: {error}.") from error


def load_checkpoint(run: Path) -> tuple[Checkpoint, Tensor]:
    """The newest checkpoint whose particles are whole, and these."""
    for found in checkpoints.newest(run):
        try:
            if isinstance(found, UserError):
                raise found
            return found, found.particles()
        except UserError as error:
            warnings.warn(f"{error} Using the checkpoint before.", stacklevel=2)
    if asked := erasures_of(run):
        request = asked[-1]
        raise UserError(
            f"The particles of run '{run}' were purged when agents {', '.join(map(str, request['agents']))} were "
            f"forgotten. The model without them is in {request['out']}."
        )
    raise UserError(f"'{run}' has no checkpoint that can be used: it is no run folder, or its run never began.")


def load_particles(run: Path) -> Tensor:
    """The particles (N_p, d) that a run has learnt. Those of an erasure that is not finished are for nobody's use."""
    config = load_run_config(run, careful=False)
    checkpoint, particles = load_checkpoint(run)
    if config.erasures and checkpoint.round < config.erasures[-1].end:
        raise UserError(
            f"The erasure in run '{run}' is not finished ({checkpoint.round} of {config.erasures[-1].end} rounds): its "
            f"particles are not to be used yet. Go on with 'fedstein resume {run}'."
        )
    return particles


def load_state(run: Path) -> State:
    """The state of a run as it was last saved, with what each agent keeps: enough to go on from."""
    return load_checkpoint(run)[0].state()
