"""What a run folder keeps of its network beside the particles.

RUN/features.safetensors    values that are not learnt, so that the run hangs on no other file
RUN/model.json              a network by name: where its code and its values came from, the listing of its parameters
                            (of a module that was given in Python: structure.py)
RUN/features.npy            what the frozen part makes of the test set; of an agent's inputs: in the agent's own folder
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedstein.by_name import origin
from fedstein.data import Rows
from fedstein.errors import UserError
from fedstein.models import Prepare, Values
from fedstein.runs.folder import load_run_config
from fedstein.settings import Config
from fedstein.store.features import Features, keep_features, prepared
from fedstein.store.files import load_tensors, save_tensors, to_json, write

__all__ = ["RECORD", "TEST", "NetworkFiles", "as_listing", "keep", "load_network_files", "read_record"]

TEST = ""  # the owner of the test set: the run itself
RECORD = "model.json"
_VALUES = "features.safetensors"


@dataclass(frozen=True, repr=False)
class NetworkFiles:
    """What there is of a network beside its particles.

    Args:
        frozen: values that are not learnt.
        parameters: the listing of a network by name.
        knows: SHA-256 of the particles of whose export the values are; None: they are from elsewhere.
        features: what the frozen part makes of inputs, by whose they are: a folder in the run.
        runs: folders of runs that may have kept such features.
    """

    frozen: Values | None = None
    parameters: Mapping[str, str] | None = None
    knows: str | None = None
    features: Mapping[str, Features] = field(default_factory=dict)
    runs: tuple[Path, ...] = ()

    def prepared(self, owner: str, prepare: Prepare | None, x: Rows) -> Features:
        """What goes into the trained part of a network, as it was kept or computed now.

        Args:
            owner: whose inputs they are: a folder in a run.
            prepare: the frozen part.
            x: raw inputs.
        """
        return prepared(prepare, x, [run / owner for run in self.runs], self.features.get(owner))


def keep(run: Path, files: NetworkFiles, config: Config) -> None:
    """Write it into a run folder."""
    if files.frozen is not None:
        save_tensors(run / _VALUES, files.frozen)
    for owner, features in files.features.items():
        keep_features(run / owner, features)
    if files.parameters is not None and config.model.module is not None:
        code = origin(config.model.module)
        record = {
            "module": config.model.module,
            "args": config.model.args,
            "package": code.package,
            "version": code.version,
            "sha256": code.sha256,
            "weights_of": files.knows,
            "parameters": dict(files.parameters),
        }
        write(run / RECORD, to_json(record, indent=2).encode())


def load_network_files(run: Path) -> NetworkFiles:
    """What a run folder has kept."""
    config = load_run_config(run, careful=False)
    values, record = run / _VALUES, {} if config.model.module is None else read_record(run)
    parameters, knows = as_listing(record.get("parameters")), record.get("weights_of")
    knows = knows if isinstance(knows, str) else None
    _warn_of_other_code(run, config, record)
    if values.is_file():
        return NetworkFiles(load_tensors(values), parameters, knows, runs=(run,))
    frozen = parameters is not None and any(words.endswith("float32 frozen") for words in parameters.values())
    if config.pretrain.rounds or frozen:
        raise UserError(f"The file {values} is missing: the network that this run has frozen cannot be made up.")
    return NetworkFiles(None, parameters, knows, runs=(run,))


def _warn_of_other_code(run: Path, config: Config, record: Mapping[str, Any]) -> None:
    """Shapes may be the same where the code is not: then it computes something else."""
    name, then = config.model.module, record.get("sha256")
    if name is not None and then is not None and (now := origin(name).sha256) is not None and now != then:
        warnings.warn(
            f"The file of '{name}' is not what it was when run '{run}' began. If it computes something else now, what "
            "you see is not what was learnt.",
            stacklevel=3,
        )


def read_record(run: Path) -> dict[str, Any]:
    """What a run folder says of its network, as far as it can be read."""
    try:
        record = json.loads((run / RECORD).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def as_listing(value: Any) -> dict[str, str] | None:
    """A part of it, for the words of a refusal only: the config has the fingerprint."""
    return value if isinstance(value, dict) and all(isinstance(words, str) for words in value.values()) else None
