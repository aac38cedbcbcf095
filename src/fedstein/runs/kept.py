"""What a run folder keeps of its network beside the particles.

RUN/features.safetensors    values that are not learnt, so that the run hangs on no other file
RUN/model.json              a network by name: where its code and its values came from, the listing of its parameters
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedstein.errors import UserError
from fedstein.models import Values, origin
from fedstein.runs.folder import load_run_config
from fedstein.settings import Config
from fedstein.store.files import load_tensors, save_tensors, to_json, write

__all__ = ["Kept", "keep", "load_kept"]

_VALUES, _RECORD = "features.safetensors", "model.json"


@dataclass(frozen=True, repr=False)
class Kept:
    """Values that are not learnt, and what is known of a network by name; None where there is nothing.

    Args:
        frozen: the values.
        parameters: the listing.
        knows: SHA-256 of the particles of whose export the values are.
    """

    frozen: Values | None = None
    parameters: Mapping[str, str] | None = None
    knows: str | None = None


def keep(run: Path, kept: Kept, config: Config) -> None:
    """Write it into a run folder."""
    if kept.frozen is not None:
        save_tensors(run / _VALUES, kept.frozen)
    if kept.parameters is not None and config.model.module is not None:
        code = origin(config.model.module)
        record = {
            "module": config.model.module,
            "args": config.model.args,
            **{key: value for key, value in asdict(code).items() if key != "file"},
            "sha256": code.sha256,
            "weights_of": kept.knows,
            "parameters": dict(kept.parameters),
        }
        write(run / _RECORD, to_json(record, indent=2).encode())


def load_kept(run: Path) -> Kept:
    """What a run folder has kept."""
    config = load_run_config(run, careful=False)
    values, record = run / _VALUES, {} if config.model.module is None else _record(run / _RECORD)
    parameters, knows = _listing(record), record.get("weights_of")
    knows = knows if isinstance(knows, str) else None
    if values.is_file():
        return Kept(load_tensors(values), parameters, knows)
    frozen = parameters is not None and any(words.endswith("frozen") for words in parameters.values())
    if config.pretrain.rounds or frozen:
        raise UserError(f"The file {values} is missing: the network that this run has frozen cannot be made up.")
    return Kept(None, parameters, knows)


def _record(path: Path) -> dict[str, Any]:
    """The record, as far as it can be read."""
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _listing(record: Mapping[str, Any]) -> dict[str, str] | None:
    """For the words of a refusal only: the config has the fingerprint."""
    parameters = record.get("parameters")
    plain = isinstance(parameters, dict) and all(isinstance(value, str) for value in parameters.values())
    return parameters if plain else None
