"""References: the same training without the erased agents. What two of them differ by is the yardstick."""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager
from pathlib import Path

from fedstein.devices import device_or_cpu
from fedstein.engines import Local
from fedstein.errors import UserError
from fedstein.protocol.state import State, Totals
from fedstein.runs.audit.record import Audit, Model
from fedstein.runs.folder import load_checkpoint, load_run_config
from fedstein.runs.given import Given
from fedstein.runs.network_files import NetworkFiles, load_network_files
from fedstein.runs.onlooker import Onlooker
from fedstein.runs.problem import Problem, build_problem
from fedstein.runs.recorder import Recorder
from fedstein.runs.training import members_of
from fedstein.runs.verbs import How, fill, leaving_out
from fedstein.settings import Config, differences, to_table
from fedstein.store.checkpoints import Checkpoint
from fedstein.store.lineage import Lineage, load_lineage
from fedstein.trackers import Watcher

__all__ = ["model_of", "reference", "retrained", "train_reference"]


def reference(config: Config, lineage: Lineage, seed: int) -> tuple[Config, Lineage]:
    """The same training, without the agents, from scratch."""
    data = config.data.model_copy(update={"seed": config.seed if config.data.seed is None else config.data.seed})
    length = lineage.training_rounds(config.rounds)
    without = config.model_copy(
        update={
            "seed": seed,
            "rounds": length,
            "data": data,
            "evaluation": config.evaluation.model_copy(update={"every": length}),
            "recording": config.recording.model_copy(update={"escrow": False, "trackers": ()}),
            "uplink": config.uplink.model_copy(update={"record_frames": False}),
        }
    )
    return without, leaving_out(lineage.erased)


def retrained(audit: Audit, seed: int, number: int, count: int, onlooker: Onlooker, given: Given | None) -> Model:
    """A retrained model; kept in RUN/audit, so that an audit that is repeated finds it."""
    config, lineage = reference(audit.config, audit.lineage, seed)
    path = audit.run / "audit" / f"retrained-{seed}"
    title = f"Retraining without the agents, seed {seed} ({number} of {count})"
    return train_reference(path, config, lineage, audit.problem.network_files, title, onlooker, given)[0]


def train_reference(
    path: Path,
    config: Config,
    lineage: Lineage,
    files: NetworkFiles | None,
    title: str,
    onlooker: Onlooker,
    given: Given | None = None,
) -> tuple[Model, Problem]:
    """A reference in a folder of its own, or as it was left there; and its problem.

    Args:
        path: the folder.
        config: of the reference.
        lineage: who is left out.
        files: what it has of the network in common with the run; None: its own.
        title: what it is, for whoever looks on.
        onlooker: sees it train.
        given: what the run was given in Python.
    """
    if (path / "config.toml").is_file() and _another(path, config, lineage):
        shutil.rmtree(path)
    begun = (path / "config.toml").is_file()
    own = load_network_files(path) if files is None and begun else files or NetworkFiles()
    problem = build_problem(config, lineage, given=given, files=own, device=device_or_cpu(config.device))
    state: State | None = None
    if begun:
        try:
            run, state = Recorder.resume(path, device=problem.device)
        except UserError:  # damaged: it costs only time to do it again
            begun = False
    if not begun:
        shutil.rmtree(path, ignore_errors=True)
        run = Recorder.create(path, config, lineage, problem.network_files, device=problem.device)
    with run:
        if state is None or state.round < config.rounds:
            engine = Local(problem.task, problem.holdings, config.method.central)
            if fill(run, problem, state, engine, How(onlooker=_Titled(onlooker, title))).trained.interrupted:
                raise KeyboardInterrupt
    checkpoint = load_checkpoint(path)[0]
    return model_of(config, checkpoint, checkpoint.totals), problem


def model_of(config: Config, checkpoint: Checkpoint, totals: Totals) -> Model:
    """The model of a checkpoint, and what it cost."""
    state = checkpoint.state()
    members = members_of(state, config.posterior, config.seed)
    return Model(config.seed, state, totals, checkpoint.seconds, checkpoint.particles_sha256, members)


def _another(path: Path, config: Config, lineage: Lineage) -> bool:
    """Whether the folder is of other settings."""
    before = load_run_config(path, careful=False), load_lineage(path)
    return bool(differences(to_table(before[0]), to_table(config))) or before[1] != lineage


class _Titled(Onlooker):
    """Says which of many trainings is under way, and nothing else."""

    def __init__(self, onlooker: Onlooker, title: str) -> None:
        self._onlooker, self._title = onlooker, title

    def watching(self, title: str, rounds: int) -> AbstractContextManager[Watcher]:
        """The title comes first."""
        self._onlooker.say(self._title)
        return self._onlooker.watching(self._title, rounds)
