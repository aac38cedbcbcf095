"""Purging: what a run folder has of erased agents is deleted, for good."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from fedstein.store import checkpoints
from fedstein.store.checkpoints import Checkpoint, agent_file, checkpoint_rounds, turn_file
from fedstein.store.features import FEATURE_FILES

__all__ = ["KINDS", "purge"]

KINDS = ("agents", "other_agents", "frames", "checkpoints", "turns", "reports", "audits", "features")


def purge(run: Path, erased: Iterable[int], keep: int = 0) -> dict[str, int]:
    """Delete what a run folder has of erased agents, and all but the newest `keep` checkpoints.

    With `keep` = 0, for a run that another one goes on from, all of its model goes: what every agent kept, the frozen
    features, audits. Reports go in any case: their table of agents tells which classes an agent had. Purging twice does
    no harm. Links are unlinked, never followed.

    Args:
        run: the folder.
        erased: the agents.
        keep: how many of the newest checkpoints stay.

    Returns:
        How many files of which kind were deleted.
    """
    deleted = dict.fromkeys(KINDS, 0)
    gone = {f"agent-{agent}" for agent in erased}
    for kind in ("agents", "frames", "checkpoints"):
        if (run / kind).is_symlink():
            (run / kind).unlink()
    for folder in sorted((run / "agents").glob("agent-*")):
        if folder.name in gone or keep == 0:
            deleted["agents" if folder.name in gone else "other_agents"] += _delete(folder)
    for name in sorted(gone):
        deleted["frames"] += _delete(run / "frames" / name)
    there = checkpoint_rounds(run)
    stems = {f"round-{round:06d}" for round in there[len(there) - keep :]}
    for round in there[: len(there) - keep]:
        checkpoints.remove(run, round)
        deleted["checkpoints"] += 1
    for file in (run / "checkpoints").glob("round-*"):  # the other half of one whose removal was cut short
        if file.is_file() and file.name.split(".")[0] not in stems:
            file.unlink()
    needed: set[Path] = set()
    turns: set[Path] = set()
    for kept in checkpoints.newest(run):
        if isinstance(kept, Checkpoint):
            needed |= {agent_file(run, agent, round) for agent, (round, _) in kept.agents.items()}
            turns |= {turn_file(run, turn.last) for turn in kept.turns.whole}
    for file in (run / "checkpoints").glob("turn-*"):
        if file not in turns:
            deleted["turns"] += _delete(file)
    for file in (run / "agents").glob("agent-*/round-*.safetensors"):
        if file not in needed:
            deleted["other_agents"] += _delete(file)
    deleted["reports"] = _delete(run / "report.html") + _delete(run / "report-figures")
    if keep == 0:
        deleted["audits"] = _delete(run / "audit")
        deleted["features"] = sum(_delete(run / name) for name in ("features.safetensors", *FEATURE_FILES))
    return deleted


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
