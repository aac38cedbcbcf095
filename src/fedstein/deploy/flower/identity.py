"""Who a run is to its agents: RUN/flower.json. Where it is, the agents' data and memories are elsewhere."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedstein.errors import UserError
from fedstein.store.files import write
from fedstein.store.journal import read_journal

__all__ = ["Identity", "confirmed", "load_identity", "names_of", "new_identity", "save_identity"]


class Identity(BaseModel):
    """What an order says of the run that it comes from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    run: str = Field(pattern=r"^[0-9a-f]{32}$")
    model_id: str = Field(pattern=r"^[0-9a-f]{32}$")  # of the model: an erasure goes on with its parent's
    names: tuple[str, ...]  # of the agents, in the order of their numbers
    before: str | None = Field(None, pattern=r"^[0-9a-f]{32}$")  # of the model before, where it was trained anew


def new_identity(names: tuple[str, ...], model_id: str | None = None, before: str | None = None) -> Identity:
    """Of a new run; of a new model if no model_id is given. `before` is the model_id of the model that it replaces."""
    model_id = uuid.uuid4().hex if model_id is None else model_id
    return Identity(run=uuid.uuid4().hex, model_id=model_id, names=names, before=before)


def names_of(text: str, agents: int) -> tuple[str, ...]:
    """The agents' names in the settings of an app; one for a simulation has none, and its agents are numbered."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    return names or tuple(f"agent-{number}" for number in range(agents))


def save_identity(run: Path, identity: Identity) -> None:
    """Write it into a run folder."""
    write(run / "flower.json", identity.model_dump_json(indent=2).encode())


def load_identity(run: Path) -> Identity | None:
    """Of a run folder; None if it is not of a Flower federation."""
    path = run / "flower.json"
    if not path.is_file():
        return None
    try:
        return Identity.model_validate(json.loads(path.read_bytes()))
    except (OSError, ValueError, ValidationError, RecursionError) as error:
        raise UserError(f"The file {path} is damaged: {str(error)[:200]}.") from None


def confirmed(run: Path) -> set[int]:
    """The agents that have said that they deleted what they knew."""
    events = [event for event in read_journal(run) if event["event"] == "confirmed"]
    return {event["agent"] for event in events if isinstance(event.get("agent"), int)}
