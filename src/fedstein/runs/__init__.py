"""Run folders: what a run leaves behind, and how it is read again."""

from fedstein.runs.folder import (
    RunFolder,
    load_particles,
    load_run_config,
    load_state,
    load_tensor,
    saved_round,
    to_json,
)

__all__ = ["RunFolder", "load_particles", "load_run_config", "load_state", "load_tensor", "saved_round", "to_json"]
