"""What the files of a run tell of it, read once: metrics.jsonl and journal.jsonl. Either may be damaged or edited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fedstein.coding import Upload
from fedstein.report.words import NAMES
from fedstein.store import read_journal, read_metrics
from fedstein.store.metrics_log import told_in

__all__ = ["Bills", "Evaluated", "Milestone", "Story", "Visits", "evaluated_in", "read_story"]

_EVERY_ROUND = ("scheduled", "sent", "applied", "checkpoint")  # events that are counted, and not told one by one


@dataclass(frozen=True)
class Evaluated:
    """A round that was evaluated."""

    round: int
    upload_bits: int  # of all agents, up to here
    metrics: dict[str, float]  # those that have a name on pages, where they are finite


@dataclass
class Visits:
    """What metrics.jsonl tells of an agent."""

    count: int = 0
    bits: int = 0
    captured: float = 0.0  # summed over visits
    refused: int = 0


@dataclass
class Bills:
    """Where the bits of all uploads went."""

    uploads: int = 0
    entries: int = 0
    positions: int = 0
    overhead: int = 0  # header, check, scale and filling
    unused: int = 0  # of the budget, where there is one
    bound: int = 0  # by the letter's formula

    def add(self, upload: Upload) -> None:
        """One more."""
        self.uploads += 1
        self.entries += upload.entry_bits
        self.positions += upload.position_bits
        self.overhead += upload.bits - upload.position_bits - upload.entry_bits
        self.bound += round(upload.bound_bits)
        if upload.budget_bits is not None:
            self.unused += upload.budget_bits - upload.bits


class Milestone(NamedTuple):
    """Something that happened once."""

    time: str
    event: str
    words: str


@dataclass
class Story:
    """All of it."""

    evaluated: list[Evaluated] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)  # those with uploads
    captured: list[float] = field(default_factory=list)  # of each of these, mean over its uploads
    kept: list[float] = field(default_factory=list)
    bills: Bills = field(default_factory=Bills)
    visits: dict[int, Visits] = field(default_factory=dict)  # by agent
    events: Counter[str] = field(default_factory=Counter)
    environment: Mapping[str, object] = field(default_factory=dict)
    milestones: list[Milestone] = field(default_factory=list)
    lines: int = 0  # of metrics.jsonl that are whole

    def visits_of(self, agent: int) -> Visits:
        """None at all, if it never came."""
        return self.visits.get(agent, Visits())


def read_story(run: Path) -> Story:
    """The story of a run folder."""
    story = Story()
    for line in read_metrics(run):
        story.lines = line["round"]
        if (evaluated := evaluated_in(line)) is not None:
            story.evaluated.append(evaluated)
        _add_uploads(story, line["round"], told_in(line).uploads)
    for event in read_journal(run):
        story.events[event["event"]] += 1
        if event["event"] not in _EVERY_ROUND:
            words = event.get("reason") or (f"round {event['round']}" if "round" in event else "")
            time = str(event.get("time", ""))[:19].replace("T", " ")
            story.milestones.append(Milestone(time, event["event"], str(words)))
        if not story.environment and isinstance(event.get("environment"), dict):
            story.environment = event["environment"]
    return story


def evaluated_in(line: Mapping[str, Any]) -> Evaluated | None:
    """What a line of metrics.jsonl says of the particles; None where the round was not evaluated."""
    if not any(name in line for name in NAMES):
        return None
    metrics = {name: line[name] for name in NAMES if isinstance(line.get(name), int | float)}
    return Evaluated(line["round"], line["total_upload_bits"], metrics)


def _add_uploads(story: Story, round: int, uploads: tuple[Upload, ...]) -> None:
    if uploads:
        story.rounds.append(round)
        story.captured.append(sum(upload.captured for upload in uploads) / len(uploads))
        story.kept.append(sum(upload.kept for upload in uploads) / len(uploads))
    for upload in uploads:
        story.bills.add(upload)
        visits = story.visits.setdefault(upload.agent, Visits())
        visits.count += 1
        visits.bits += upload.bits
        visits.captured += upload.captured
        visits.refused += upload.refused
