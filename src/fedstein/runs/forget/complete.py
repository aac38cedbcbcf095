"""The end of an erasure: everything is purged, and the journals say so."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from fedstein.runs.folder import is_remote, load_checkpoint
from fedstein.runs.recorder import hold
from fedstein.store.journal import erasures_of, read_journal
from fedstein.store.lineage import Erasure, Lineage, load_lineage
from fedstein.store.metrics_log import read_metrics
from fedstein.store.purge import purge

__all__ = ["bits_before", "complete", "describe", "done_event", "is_done", "left_of", "unforgotten"]

MOST_LEFT = 0.05  # of an agent's contribution, where it is taken for forgotten


def complete(run: Path) -> None:
    """Purge what is left of the agents, in this run and in those before it, and say that it is done.

    Doing it again purges what could not be reached before, for instance a run folder that had been moved.
    """
    lineage = load_lineage(run)
    checkpoint = load_checkpoint(run)[0]
    erasure = lineage.newest
    gone = {
        "request": _request_of(erasure, run),
        "agents": list(erasure.agents),
        "out": str(run.resolve()),
        "round": checkpoint.round,
        "parent_sha256": erasure.parent_sha256,
        "particles_sha256": checkpoint.particles_sha256,
        "unforgotten": unforgotten(run),
    }
    done = is_done(run)
    for one in reversed(lineage.erasures):
        if not one.parent:  # nobody asked: the model never had these agents
            continue
        place = Path(one.parent)
        # A run is purged only if it knows of the request itself: a config could name any folder.
        if _request_of(one) is None:
            warnings.warn(
                f"The run '{place}' that the erasure began from is not there, or knows nothing of it: it was not "
                f"purged. Put it back and say 'fedstein resume {run}', or delete it.",
                stacklevel=2,
            )
            continue
        with hold(place) as journal:
            deleted = {} if erasure.keep_parent else purge(place, lineage.erased)
            if any(deleted.values()):
                journal.note("purged", **deleted)
            if one is erasure and not any(
                event["request"] == gone["request"] and event["done"] for event in erasures_of(place)
            ):
                journal.note("erasure done", **gone)
            journal.sync()
    if done:
        return
    with hold(run) as journal:
        journal.note("purged", kept_parent=erasure.keep_parent, **purge(run, lineage.erased, keep=1))
        journal.note("erasure done", **gone)
        journal.sync()


def unforgotten(run: Path) -> list[int]:
    """Agents elsewhere that had to forget themselves, and did not, or not enough: the model still knows them."""
    erasure = load_lineage(run).newest
    if erasure.rounds == 0 or not is_remote(run):  # retrained, or taken back by the server; or nobody can be away
        return []
    return sorted(agent for agent, left in left_of(run, erasure).items() if left > MOST_LEFT)


def left_of(run: Path, erasure: Erasure) -> dict[int, float]:
    """What is left of each agent that forgets itself: 1 until it has answered.

    Of a site: every upload says which share of the energy of all that was left has arrived.
    """
    left = dict.fromkeys(erasure.agents, 1.0)
    for line in read_metrics(run):
        if erasure.start < line["round"] <= erasure.last_visit:
            for upload in line["uploads"]:
                if upload["agent"] in left and not upload["refused"]:
                    gone = upload["captured"] if erasure.method == "take-back" else 1.0
                    left[upload["agent"]] *= min(1.0, max(0.0, 1.0 - gone)) ** 0.5
    return left


def is_done(run: Path) -> bool:
    """Whether the erasure that a run folder is for is complete; one that nobody asked for always is."""
    lineage = load_lineage(run)
    return (bool(lineage) and not lineage.asked) or done_event(run) is not None


def done_event(run: Path) -> dict[str, Any] | None:
    """What the journal says of the end of the erasure that a run folder is for."""
    if not (run / "config.toml").is_file() or not (lineage := load_lineage(run)):
        return None
    began = lineage.newest.parent_sha256
    events = [event for event in read_journal(run) if event["event"] == "erasure done"]
    return next((event for event in events if began and event.get("parent_sha256") == began), None)


def bits_before(run: Path, lineage: Lineage) -> int:
    """What had been sent up when the newest erasure began."""
    start = lineage.newest.start
    return next((line["total_upload_bits"] for line in read_metrics(run) if line["round"] == start), 0)


def describe(run: Path, result: dict[str, Any]) -> dict[str, Any]:
    """The result of an erasure: what `fedstein forget --json` prints."""
    lineage = load_lineage(run)
    erasure = lineage.newest
    sent = bits_before(run, lineage)
    described = {
        "run": str(run),
        "parent": erasure.parent,
        "method": erasure.method,
        "by": erasure.by,
        "agents": list(erasure.agents),
        "rounds": result["rounds"] - erasure.start,
        "upload_bits": result["total_upload_bits"] - sent,
        "forgotten_accuracy": result.get("forgotten_accuracy"),
        "retained_accuracy": result.get("retained_accuracy"),
        "seconds": result["seconds"],
        "total_rounds": result["rounds"],
    }
    return described | {key: value for key, value in result.items() if key not in described}


def _request_of(erasure: Erasure, run: Path | None = None) -> str | None:
    """The number of the request behind an erasure, in the journal of the run that it was asked of.

    Where the parent was kept there may be several alike; the one that asked for the folder `run` is meant then.
    """
    alike = [
        event
        for event in erasures_of(Path(erasure.parent))
        if event["agents"] == sorted(erasure.agents) and event.get("particles_sha256") == erasure.parent_sha256
    ]
    named = [event for event in alike if run is not None and event["out"] == str(run.resolve())]
    return next((str(event.get("request")) for event in [*named, *alike]), None)
