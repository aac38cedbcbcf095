"""The journal: what happened in a run, in order, never changed afterwards.

One JSON object a line, with `time` (UTC) and `event`:

    started      config, lineage, environment
    resumed      round, environment             going on from the checkpoint of that round; what the journal has of
                                                later rounds before this line was done again after it
    extended     rounds
    scheduled    round, agents
    sent         round, agent, bits
    applied      round, agent, share            the server added share times the difference
    refused      round, agent, reason           the frame was no good: nothing was added
    checkpoint   round
    damaged      file, reason                   a checkpoint that could not be used
    stopped      round, reason                  finished, interrupted, or an error
    erasure requested  request, agents, method, out, options, round, particles_sha256     in the parent, before all else
    erasure began      parent, round, before    in the new run: where it begins, and how good the model was then
    forgot       round, site_norms              the agents that asked have had their last round
    purged       files by kind, kept_parent     what was deleted of the agents
    erasure done request, out, round, particles_sha256     in both
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedstein.store.files import Lines, read_lines

__all__ = ["Journal", "erasures_of", "read_journal"]


class Journal(Lines):
    """RUN/journal.jsonl, open for writing."""

    def __init__(self, run: Path) -> None:
        super().__init__(run / "journal.jsonl")

    def note(self, event: str, **about: Any) -> None:
        """Append an event."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.add({"time": now, "event": event, **about})


def read_journal(run: Path) -> Iterator[dict[str, Any]]:
    """The events of a run, oldest first."""
    for event, _ in read_lines(run / "journal.jsonl"):
        if isinstance(event.get("event"), str):
            yield event


def erasures_of(run: Path) -> list[dict[str, Any]]:
    """The erasures that were requested of a run, as its journal has them, oldest first; and which are `done`."""
    requests, done = [], set()
    for event in read_journal(run):
        if event["event"] == "erasure requested" and isinstance(event.get("agents"), list):
            requests.append(event | {"out": str(event.get("out"))})
        elif event["event"] == "erasure done":
            done.add(str(event.get("request")))
    return [event | {"done": str(event.get("request")) in done} for event in requests]
