"""Lineage: which run came from which, by which request. It is history, and never part of the settings.

RUN/lineage.json is there where a run is an erasure; it lists every erasure behind the model, the oldest first.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from fedstein.errors import UserError
from fedstein.store.files import write

__all__ = ["Erasure", "Forgetting", "Lineage", "Side", "load_lineage", "save_lineage"]

Forgetting = Literal["forget-svgd", "take-back", "retrain"]
Side = Literal["agent", "server"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @field_validator("agents", "erasures", mode="before", check_fields=False)
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value


class Erasure(_Record):
    """One erasure: what was asked, how it is done, and where it began."""

    agents: tuple[Annotated[int, Field(ge=0)], ...]  # who is forgotten
    method: Forgetting
    by: Side = "agent"  # who takes a contribution back: its agent, or the server
    start: int = Field(0, ge=0)  # the round that the parent had reached; 0: from scratch
    rounds: int = Field(0, ge=0)  # in which the agents themselves forget
    repair: int = Field(0, ge=0)  # after that, of the agents that stay
    handover: bool = True  # what is taken back is shared out to those who stay; false: it is subtracted
    guarded: bool = True  # false: Forget-SVGD as the letter writes it
    keep_parent: bool = False  # nothing is purged from the parent
    parent: str = ""  # the run folder that it began from
    parent_sha256: str = ""  # of the particles that it began from

    @field_validator("agents")
    @classmethod
    def _some(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or len(set(value)) < len(value):
            raise ValueError(f"agents must be some, none of them twice. Got {list(value)} instead.")
        return value

    @property
    def last_visit(self) -> int:
        """The round after which none of its agents visits any more."""
        return self.start + self.rounds

    @property
    def end(self) -> int:
        """The round after which the erasure is complete."""
        return self.last_visit + self.repair


class Lineage(_Record):
    """All erasures behind a model, the oldest first; none for a model that had all of its agents.

    A model that was trained without some of them from the first round on has one too, which nobody asked for.
    """

    erasures: tuple[Erasure, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.erasures)

    @property
    def newest(self) -> Erasure:
        """The erasure that a run is for."""
        return self.erasures[-1]

    @property
    def asked(self) -> bool:
        """Whether the run is an erasure that somebody asked for; or it only never had some of the agents."""
        return bool(self.erasures) and self.newest.parent != ""

    @property
    def erased(self) -> tuple[int, ...]:
        """The agents that were forgotten, in this run or before it."""
        return tuple(sorted({agent for erasure in self.erasures for agent in erasure.agents}))

    @property
    def forgets(self) -> bool:
        """Whether the run goes on from another one, to forget: its rounds are not those of plain training."""
        return bool(self.erasures) and self.newest.start > 0

    def training_rounds(self, rounds: int) -> int:
        """Rounds of training before anything was forgotten; all `rounds` where there was no erasure."""
        return next((erasure.start for erasure in self.erasures if erasure.start > 0), rounds)

    def with_one_more(self, erasure: Erasure) -> Lineage:
        """As it will be."""
        return Lineage(erasures=(*self.erasures, erasure))

    def table(self) -> dict[str, Any]:
        """As plain values."""
        table: dict[str, Any] = json.loads(self.model_dump_json())
        return table


def save_lineage(run: Path, lineage: Lineage) -> None:
    """Write it into a run folder; a model that forgot nothing has none."""
    if lineage:
        write(run / "lineage.json", lineage.model_dump_json(indent=2).encode())


def load_lineage(run: Path) -> Lineage:
    """Of a run folder."""
    path = run / "lineage.json"
    if not path.is_file():
        return Lineage()
    try:
        return Lineage.model_validate(json.loads(path.read_bytes()))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise UserError(f"The file {path} is damaged: {where}: {first['msg']}.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"The file {path} is damaged: {str(error)[:200]}.") from None
