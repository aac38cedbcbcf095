"""The run folder: what was asked, what happened, what was learnt.

    RUN/config.toml            every setting, defaults included
    RUN/environment.json       versions and machine
    RUN/metrics.jsonl          one JSON object for each evaluated round
    RUN/particles.safetensors  the particles after the last finished round
    RUN/result.json            the final metrics, as `fedstein train --json` prints them

Tensors rest as safetensors, settings as TOML and JSON; nothing is ever unpickled.
"""

from __future__ import annotations

import json
import os
import platform
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fedstein.config import Config, make_config, to_toml
from fedstein.engines import State
from fedstein.errors import UserError
from fedstein.problem import Metrics

__all__ = ["RunFolder", "load_particles", "load_run_config"]


class RunFolder:
    """A new run folder, and the watcher that fills it."""

    def __init__(self, path: Path, config: Config) -> None:
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            raise UserError(f"The run folder {path} exists already. Choose another '--out', or delete it.") from None
        except OSError as error:
            raise UserError(f"Cannot make the run folder {path}: {error.strerror}.") from error
        self.path = path
        (path / "config.toml").write_text(to_toml(config), encoding="utf-8")
        environment = {
            "fedstein": version("fedstein"),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "threads": torch.get_num_threads(),
        }
        _write(path / "environment.json", json.dumps(environment, indent=2).encode())

    def after_round(self, state: State, metrics: Metrics | None) -> None:
        """Record an evaluated round."""
        if metrics is not None:
            with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(metrics) + "\n")
            self.save(state)

    def save(self, state: State) -> None:
        """Keep the particles; the file is replaced in one step, so it is always a whole one."""
        content = save({"particles": state.particles.contiguous()}, {"round": str(state.round)})
        _write(self.path / "particles.safetensors", content)

    def finish(self, result: dict[str, Any]) -> None:
        """Keep the final result."""
        _write(self.path / "result.json", json.dumps(result, indent=2).encode())


def load_run_config(run: Path) -> Config:
    """The config that a run was made with."""
    try:
        return make_config(tomllib.loads((run / "config.toml").read_text(encoding="utf-8")))
    except OSError as error:
        raise UserError(f"'{run}' is not a run folder: cannot read its config.toml ({error.strerror}).") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"The config.toml of run '{run}' is damaged: {error}.") from error


def load_particles(run: Path) -> Tensor:
    """The particles (N_p, d) that a run has learnt."""
    path = run / "particles.safetensors"
    if not path.is_file():
        raise UserError(f"'{run}' has no particles.safetensors: it is no run folder, or no round was finished.")
    try:
        with safe_open(path, framework="pt") as file:
            particles: Tensor = file.get_tensor("particles")
    except (SafetensorError, OSError) as error:
        raise UserError(f"The file {path} is damaged: {error}.") from error
    if particles.dim() != 2 or not torch.isfinite(particles).all():
        raise UserError(f"The file {path} is damaged: it does not hold finite (N_p, d) particles.")
    return particles


def _write(path: Path, content: bytes) -> None:
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
