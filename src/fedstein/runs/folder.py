"""Reading a run folder: its config, and the particles that it holds. Every file may be damaged or edited."""

from __future__ import annotations

import tomllib
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from fedstein.errors import UserError
from fedstein.protocol.state import State
from fedstein.settings import MOST_ROUNDS, Config, differences, make_config, to_table
from fedstein.store import checkpoints
from fedstein.store.allowed import check_allowed
from fedstein.store.checkpoints import Checkpoint, checkpoint_rounds
from fedstein.store.features import FEATURE_FILES
from fedstein.store.journal import erasures_of, read_journal
from fedstein.store.lineage import Lineage, load_lineage

__all__ = [
    "check_particles",
    "edits",
    "is_half_made",
    "is_remote",
    "left_out",
    "lineage_of",
    "load_checkpoint",
    "load_learnt",
    "load_particles",
    "load_run_config",
    "load_state",
    "read_run_config",
    "recorded_config",
]


@dataclass(frozen=True)
class Recorded:
    """Settings and lineage as the journal has them."""

    config: dict[str, Any]
    rounds_before: list[int]  # the rounds that it had before it was extended
    lineage: dict[str, Any]

    def edits(self, config: Config, lineage: Lineage) -> list[str]:
        """How these differ from it, one line a key."""
        history = differences({"lineage": self.lineage}, {"lineage": lineage.table() if lineage else {}})
        # A run from before there were devices was on the CPU.
        return [*differences(_with_newer({"device": "cpu"} | self.config), to_table(config)), *history]


def _with_newer(table: dict[str, Any]) -> dict[str, Any]:
    """With the settings that there were not when a run began: it goes on as if they had been left out."""
    try:
        return to_table(make_config(table))
    except UserError:  # whatever it says, it is no config: it differs
        return table


def recorded_config(run: Path) -> Recorded | None:
    """What the journal says that a run began with; None if it has lost its beginning."""
    events = list(read_journal(run))
    started = next((event for event in events if event["event"] == "started"), {})
    config, lineage = started.get("config"), started.get("lineage", {})
    if not isinstance(config, dict) or not isinstance(lineage, dict):
        return None
    asked = [config.get("rounds"), *(event.get("rounds") for event in events if event["event"] == "extended")]
    rounds = [number for number in asked if type(number) is int and 1 <= number <= MOST_ROUNDS]
    now = config | {"rounds": rounds[-1] if rounds else None}
    method = config.get("method")
    if isinstance(method, dict) and method.get("anneal_over", 0) == config.get("rounds"):
        now["method"] = method | {"anneal_over": now["rounds"]}  # as `Config.lengthened` does
    return Recorded(now, rounds[:-1], lineage)


def edits(run: Path) -> list[str]:
    """How config and lineage of a run differ from what its journal says that it began with; one line a key."""
    recorded = recorded_config(run)
    if recorded is None:
        return ["the journal has lost its beginning"]
    return recorded.edits(load_run_config(run, careful=False), load_lineage(run))


def lineage_of(run: Path) -> Lineage:
    """The lineage of a run, which must be there if its journal knows of one: without it nobody is erased.

    Raises:
        UserError: lineage.json is gone, or names fewer agents.
    """
    lineage, recorded = load_lineage(run), recorded_config(run)
    known = [] if recorded is None else recorded.lineage.get("erasures", [])
    erased = {agent for erasure in known if isinstance(erasure, dict) for agent in erasure.get("agents", [])}
    if not erased <= set(lineage.erased):
        raise UserError(
            f"The lineage.json of run '{run}' is gone, or lacks agents that its journal says were erased. Put it back."
        )
    return lineage


def read_run_config(run: Path) -> Config:
    """The config that a run was made with, to look at: whoever makes its model needs `load_run_config`."""
    try:
        table = tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"'{run}' is not a run folder: cannot read its config.toml ({error.strerror}).") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"The config.toml of run '{run}' is damaged: {error}.") from error
    if "erasures" in table:
        raise UserError(
            f"The run '{run}' was made by an earlier fedstein, which kept erasures in config.toml. Use that one, or "
            "forget again from the run that it began from."
        )
    return make_config(table)


def load_run_config(run: Path, careful: bool = True) -> Config:
    """The config that a run was made with, whose code may run here; a warning if it was edited since (`careful`)."""
    config = read_run_config(run)
    for name, what in ((config.model.module, "model"), (config.data.source, "data")):
        if name is not None:
            check_allowed(name, run, what)
    recorded = recorded_config(run) if careful else None
    if recorded is not None and (changed := recorded.edits(config, load_lineage(run))):
        warnings.warn(
            f"The config of run '{run}' was edited since it began ({'; '.join(changed)}): "
            "what you see may not be what it learnt.",
            stacklevel=2,
        )
    return config


def load_checkpoint(run: Path) -> tuple[Checkpoint, State]:
    """The newest checkpoint whose model is whole, and what was learnt."""
    for checkpoint in checkpoints.newest(run):
        try:
            if isinstance(checkpoint, UserError):
                raise checkpoint
            return checkpoint, checkpoint.learnt()
        except UserError as error:
            warnings.warn(f"{error} Using the checkpoint before.", stacklevel=2)
    if asked := erasures_of(run):
        request = asked[-1]
        raise UserError(
            f"The particles of run '{run}' were purged when agents {', '.join(map(str, request['agents']))} were "
            f"forgotten. The model without them is in {request['out']}."
        )
    if checkpoint_rounds(run):
        raise UserError(f"No checkpoint of run '{run}' can be used: each has lost a file, or has a damaged one.")
    raise UserError(f"'{run}' has no checkpoint that can be used: it is no run folder, or its run never began.")


def load_particles(run: Path) -> Tensor:
    """The particles (N_p, d) that a run has learnt."""
    return load_learnt(run).particles


def load_learnt(run: Path) -> State:
    """What a run has learnt, without its agents' memories. An erasure that is not finished is for nobody's use."""
    read_run_config(run)  # is it a run folder at all?
    lineage = lineage_of(run)
    checkpoint, learnt = load_checkpoint(run)
    if checkpoint.round == 0 < checkpoint_rounds(run)[-1]:
        raise UserError(
            f"No checkpoint of run '{run}' after round 0 can be used: each has lost a file, or has a damaged one. "
            f"'fedstein resume {run}' trains it again."
        )
    if lineage and checkpoint.round < lineage.newest.end:
        raise UserError(
            f"The erasure in run '{run}' is not finished ({checkpoint.round} of {lineage.newest.end} rounds): its "
            f"particles are not to be used yet. Go on with 'fedstein resume {run}'."
        )
    return learnt


def load_state(run: Path) -> State:
    """The state of a run as it was last saved, with what each agent keeps: enough to go on from."""
    return load_checkpoint(run)[0].state()


def check_particles(run: Path, config: Config, dim: int, particles: Tensor | None) -> None:
    """Refuse particles that are not of this run's model."""
    expected = (config.method.particles, dim)
    if particles is not None and tuple(particles.shape) != expected:
        raise UserError(
            f"The particles of '{run}' do not fit its config.toml: {tuple(particles.shape)}, expected {expected}."
        )


def left_out(config_file: Path) -> tuple[int, ...]:
    """The agents that a training with this file leaves out: those that were erased from the run whose config it is.

    Raises:
        UserError: the run began where another one has ended, so that its config alone does not say what it learnt.
    """
    file = config_file.resolve()
    lineage = lineage_of(file.parent) if file.name == "config.toml" else Lineage()
    if lineage.forgets:
        raise UserError(
            "The config is of an erasure, which begins where another run has ended. Train that run, then use "
            "'fedstein forget'."
        )
    return lineage.erased


def is_remote(run: Path) -> bool:
    """Whether the agents of a run have their data and memories on machines of their own."""
    return (run / "flower.json").is_file()


def is_half_made(path: Path) -> bool:
    """Whether a run folder was stopped before its config was written: nothing in it is of any use."""
    first = {
        "lock",
        "environment.json",
        "features.safetensors",
        *FEATURE_FILES,
        "model.json",
        "data.json",
        "config.toml",
        "lineage.json",
        "agents",
        "test.sha256",
    }
    names = {file.name for file in path.iterdir()} if path.is_dir() else {"no folder"}
    made_by_us = "lock" in names or not names
    return made_by_us and "config.toml" not in names and {name.removesuffix(".part") for name in names} <= first
