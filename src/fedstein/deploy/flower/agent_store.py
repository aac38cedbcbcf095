"""The agent's store: it remembers for itself, in a folder on its own disk, which no server sees.

    STATE/<model>/home.json                 which visit waits for its outcome, and the SHA-256 of the files
    STATE/<model>/memory-<n>.safetensors    what the agent remembers (site, local particles, residual)
    STATE/<model>/waiting-<n>.safetensors   the visit whose outcome it does not know yet
    STATE/<model>/frozen.safetensors        values of the network that are not learnt, the same for everybody
    STATE/<model>/features.npy              what a frozen network makes of the agent's inputs

A visit ends with one write of home.json. Whatever stops the agent before that, it has not been there: the same order
again gives the same answer. Whether an answer was applied the agent learns with its next order, and settles then. So an
answer that was lost, late, refused or sent twice leaves the agent's memory as the server's model is.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from fedstein.data import Examples
from fedstein.devices import CPU
from fedstein.errors import OrderError, RunError, UserError
from fedstein.methods import Memory
from fedstein.models import Network, Task, Values
from fedstein.protocol.agent import Waiting, answer, settle, visit_of
from fedstein.protocol.messages import HANDED_OVER, Answer, Outcome
from fedstein.protocol.wire import Head, read_head
from fedstein.store.features import FEATURE_FILES
from fedstein.store.files import check_sha256, load_tensors, save_tensors, write
from fedstein.store.lock import take_lock

__all__ = ["NeedsFrozenError", "purge_agent", "visit_as_agent"]

FROZEN_FILE = "frozen.safetensors"


class NeedsFrozenError(OrderError):
    """The order is about values that this agent does not have: the next one must bring them."""


class _Record(BaseModel):
    """home.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    agent: str  # its name
    number: int = 0  # of the files; it only grows
    settled: int = -1  # the last round whose outcome is part of the memory
    method: str = ""
    handed: tuple[str, ...] = ()  # the portions of erased agents that are part of the memory
    memory: str | None = None  # SHA-256
    waiting: str | None = None
    head: str | None = None  # of the order that waits
    forgotten: bool = False


def visit_as_agent(
    state: Path,
    head: Head,
    particles: Tensor,
    load: Callable[[Network, Path], Examples],
    frozen: Values | None = None,
    portions: Mapping[str, Tensor] | None = None,
    device: torch.device = CPU,
) -> Answer:
    """Do what an order says, with what this agent remembers, and keep what has to be kept.

    Args:
        state: the agent's folder.
        head: of the order.
        particles: as they were sent.
        load: the agent's own examples as a network takes them, from that and the folder in which the agent keeps what
            is frozen has made of them.
        frozen: values that are not learnt, if the order brought them; else those that the agent has kept.
        portions: of what others have taken back, by name; each is taken over once.
        device: on which this agent computes: its own affair.

    Raises:
        OrderError: it cannot be followed; the reason is for the server to read.
        UserError: the agent's own data or files; that is nobody else's business.
        RunError: the disk.
    """
    folder = state / head.model_id
    with _at_home(folder):
        record = _read(folder, head.name)
        if record.forgotten:
            raise OrderError(f"Agent '{head.name}' was forgotten, and has deleted what it knew of this model.")
        if record.number == 0 and head.outcome is not None and head.method.remembers:
            raise OrderError(
                f"Agent '{head.name}' has lost what it knew of this model, and would count its data twice. Put its "
                "state folder back; or let the others forget it without it ('--by server', '--method retrain')."
            )
        if head.round <= record.settled:
            raise OrderError(
                f"Agent '{head.name}' knows the outcome of round {record.settled + 1}, and is asked for round "
                f"{head.round + 1}: the server has lost its newest checkpoints."
            )
        if record.head is not None and head.round < read_head(record.head).round:
            raise OrderError(
                f"Agent '{head.name}' has answered a later round than {head.round + 1} already: the server has lost "
                "its newest checkpoints, or this order is late."
            )
        network = head.network(_frozen(folder, head, frozen), device)
        task, data = head.prior.task(network), load(network, folder)
        memory, settled = _settled(folder, record, head, task, data)
        handed = record.handed
        for name, portion in sorted((portions or {}).items()):
            if name.startswith(HANDED_OVER) and name not in handed:
                memory = head.method.take_over(memory, portion)
                handed = (*handed, name)
        if record.method not in ("", head.method.name):
            memory = head.method.inherit(memory)
        order = head.order(task, particles, memory)
        head.method.check(task.prior)
        reply, waiting = answer(order, task, data)
        _keep(folder, record, settled, handed, head, memory, waiting)
    return reply


def purge_agent(state: Path, model_id: str, name: str) -> int:
    """Delete what an agent knows of a model, for good; how many files that were.

    A note that it was forgotten stays, so that it never takes part again by mistake. Doing it twice does no harm.
    """
    folder = state / model_id
    with _at_home(folder):
        write(folder / "home.json", _Record(agent=name, forgotten=True).model_dump_json().encode())
        files = [file for file in folder.iterdir() if file.name not in ("home.json", "lock")]
        for file in files:
            shutil.rmtree(file) if file.is_dir() and not file.is_symlink() else file.unlink()
        return len(files)


@contextmanager
def _at_home(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = take_lock(folder)
    except OSError as error:
        raise RunError(f"Cannot write to the agent's folder {folder}: {error.strerror}.") from error
    try:
        yield
    except OSError as error:
        raise RunError(f"Cannot use the agent's folder {folder}: {error.strerror}.") from error
    finally:
        os.close(lock)


def _read(folder: Path, name: str) -> _Record:
    path = folder / "home.json"
    if not path.exists():
        return _Record(agent=name)
    try:
        record = _Record.model_validate(json.loads(path.read_bytes()))
    except (ValidationError, ValueError, RecursionError) as error:
        raise UserError(f"The file {path} of agent '{name}' is damaged: {str(error)[:200]}.") from None
    if record.agent != name:
        raise UserError(f"The folder {folder} is of agent '{record.agent}', not of '{name}'.")
    return record


def _settled(folder: Path, record: _Record, head: Head, task: Task, data: Examples) -> tuple[Memory, int]:
    """What the agent remembers now that it knows what became of its last visit."""
    memory = _load(folder, "memory", record.number, record.memory)
    if record.head is None:
        return memory, record.settled
    before = read_head(record.head)
    if before.round >= head.round:  # asked again: as if it had not been there
        return memory, record.settled
    kept = _load(folder, "waiting", record.number, record.waiting)
    order = before.order(task, kept["particles"], memory)
    visit = visit_of(order, task, data)
    outcome = Outcome(*head.outcome) if head.outcome is not None and head.outcome[0] == before.round else None
    return settle(Waiting(order, visit, kept["wish"], kept.get("arrives", kept["wish"])), outcome), before.round


def _keep(
    folder: Path,
    record: _Record,
    settled: int,
    handed: tuple[str, ...],
    head: Head,
    memory: Memory,
    waiting: Waiting,
) -> None:
    number = record.number + 1
    visit = {"particles": waiting.order.particles, "wish": waiting.wish}
    if waiting.arrives is not waiting.wish:  # without a budget all of it arrives
        visit["arrives"] = waiting.arrives
    new = _Record(
        agent=record.agent,
        number=number,
        settled=settled,
        method=head.method.name,
        handed=handed,
        memory=save_tensors(folder / f"memory-{number}.safetensors", memory) if memory else None,
        waiting=save_tensors(folder / f"waiting-{number}.safetensors", visit),
        head=head.to_json(),
    )
    write(folder / "home.json", new.model_dump_json().encode())
    keep = {f"{kind}-{number}.safetensors" for kind in ("memory", "waiting")} | {
        "home.json",
        "lock",
        FROZEN_FILE,
        *FEATURE_FILES,
    }
    for file in folder.iterdir():
        if file.name not in keep:
            file.unlink()


def _frozen(folder: Path, head: Head, sent: Values | None) -> Values | None:
    """The values that are not learnt: as they were sent, and kept for the next order; or as they were kept."""
    if head.frozen is None:
        return None
    path = folder / FROZEN_FILE
    if sent:
        save_tensors(path, sent)
        return sent
    try:
        return load_tensors(path)
    except UserError as error:
        raise NeedsFrozenError("The frozen values are not here.") from error


def _load(folder: Path, kind: str, number: int, digest: str | None) -> Memory:
    if digest is None:
        return {}
    path = folder / f"{kind}-{number}.safetensors"
    check_sha256(path, digest)
    return load_tensors(path)
