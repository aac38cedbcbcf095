"""Run folders: what a run leaves behind, and going on from there."""

from fedstein.runs.checkpoints import Checkpoint
from fedstein.runs.files import load_tensor, to_json
from fedstein.runs.folder import (
    RunFolder,
    edits,
    erasures_of,
    hold,
    in_use,
    is_half_made,
    is_metrics,
    is_remote,
    load_checkpoint,
    load_particles,
    load_run_config,
    load_state,
    purge,
    read_metrics,
    take_lock,
)
from fedstein.runs.journal import read_journal

__all__ = [
    "Checkpoint",
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
    "load_tensor",
    "purge",
    "read_journal",
    "read_metrics",
    "take_lock",
    "to_json",
]
