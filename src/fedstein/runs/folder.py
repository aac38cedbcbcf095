"""The run folder: what was asked, what happened, what was learnt.

    RUN/config.toml            every setting, defaults included
    RUN/environment.json       versions and machine
    RUN/metrics.jsonl          one JSON object for each evaluated round
    RUN/uploads.jsonl          one JSON object for each round: who sent how many bits, within which budget
    RUN/frames/agent-K/        the frames themselves, if uplink.record_frames is set
    RUN/particles.safetensors  the particles as they were last saved: at each evaluation and at the end
    RUN/agents/agent-K.safetensors  what agent K keeps (site, local particles, residual): delete it to purge the agent
    RUN/features.safetensors   the frozen network before a last layer, if model.features was set
    RUN/result.json            the final metrics, as `fedstein train --json` prints them

Tensors rest as safetensors, settings as TOML and JSON; nothing is ever unpickled.
"""

from __future__ import annotations

import json
import math
import os
import platform
import tomllib
from dataclasses import asdict
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

__all__ = ["RunFolder", "load_particles", "load_run_config", "load_state", "load_tensor", "saved_round", "to_json"]


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
        self._record_frames = config.uplink.record_frames and config.uplink.budget is not None
        (path / "config.toml").write_text(to_toml(config), encoding="utf-8")
        environment = {
            "fedstein": version("fedstein"),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "threads": torch.get_num_threads(),
        }
        _write(path / "environment.json", to_json(environment, indent=2).encode())

    def after_round(self, state: State, metrics: Metrics | None) -> None:
        """Record the bills of a round, its frames if asked to, and its metrics if it was evaluated."""
        bills = [asdict(upload) for upload in state.uploads]
        down = 32 * state.particles.numel() * len(bills)
        with (self.path / "uploads.jsonl").open("a", encoding="utf-8") as file:
            file.write(to_json({"round": state.round, "download_bits": down, "uploads": bills}) + "\n")
        if self._record_frames:
            for upload, frame in zip(state.uploads, state.frames, strict=True):
                folder = self.path / "frames" / f"agent-{upload.agent}"  # apart, so that an agent's can be purged
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"round-{state.round:06d}.frame").write_bytes(frame)
        if metrics is not None:
            with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write(to_json(metrics) + "\n")
            self.save(state)

    def keep_features(self, particle: Tensor) -> None:
        """Keep the frozen particle that the inputs go through, so that this run does not hang on another one."""
        _write(self.path / "features.safetensors", save({"features": particle.contiguous()}))

    def save(self, state: State) -> None:
        """Keep the particles and what each agent keeps; a file is replaced in one step, so it is always a whole one."""
        for agent, memory in state.memories.items():
            if memory:
                tensors = {name: value.contiguous() for name, value in memory.items()}
                (self.path / "agents").mkdir(exist_ok=True)
                _write(self.path / "agents" / f"agent-{agent}.safetensors", save(tensors, {"round": str(state.round)}))
        content = save({"particles": state.particles.contiguous()}, {"round": str(state.round)})
        _write(self.path / "particles.safetensors", content)

    def finish(self, result: dict[str, Any]) -> None:
        """Keep the final result."""
        _write(self.path / "result.json", to_json(result, indent=2).encode())


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON as the standard has it: a number that is not finite becomes null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def load_run_config(run: Path) -> Config:
    """The config that a run was made with."""
    try:
        return make_config(tomllib.loads((run / "config.toml").read_text(encoding="utf-8")))
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"'{run}' is not a run folder: cannot read its config.toml ({error.strerror}).") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"The config.toml of run '{run}' is damaged: {error}.") from error


def load_particles(run: Path) -> Tensor:
    """The particles (N_p, d) that a run has learnt."""
    path = run / "particles.safetensors"
    if not path.is_file():
        raise UserError(f"'{run}' has no particles.safetensors: it is no run folder.")
    particles = load_tensor(path, "particles")
    if particles.dim() != 2 or particles.numel() == 0:
        raise UserError(f"The file {path} is damaged: it does not hold (N_p, d) particles.")
    return particles


def saved_round(run: Path) -> int:
    """After how many rounds the particles of a run were saved."""
    return _round_of(run / "particles.safetensors")


def load_state(run: Path) -> State:
    """The state of a run as it was last saved, with what each agent keeps: enough to go on from."""
    round = saved_round(run)
    memories: dict[int, dict[str, Tensor]] = {}
    for path in sorted((run / "agents").glob("agent-*.safetensors")):
        number = path.stem.removeprefix("agent-")
        if not number.isdecimal() or _round_of(path) != round:
            raise UserError(f"The file {path} does not belong to the particles of round {round}.")
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
        memories[int(number)] = {name: load_tensor(path, name) for name in names}
    return State(round, load_particles(run), memories)


def _round_of(path: Path) -> int:
    try:
        with safe_open(path, framework="pt") as file:
            return int((file.metadata() or {})["round"])
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise UserError(f"The file {path} does not say its round: {error}.") from error


def load_tensor(path: Path, name: str) -> Tensor:
    """A finite float32 tensor from a safetensors file."""
    try:
        with safe_open(path, framework="pt") as file:
            found: Tensor = file.get_tensor(name)
    except (SafetensorError, OSError) as error:
        raise UserError(f"The file {path} is damaged: {error}.") from error
    if found.dtype != torch.float32 or not torch.isfinite(found).all():
        raise UserError(f"The file {path} is damaged: '{name}' is not finite float32.")
    return found


def _write(path: Path, content: bytes) -> None:
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
