"""Runs to be compared, and which of them are one setting: those that differ in nothing but the seed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedstein.errors import UserError
from fedstein.report.story import Evaluated, evaluated_in
from fedstein.runs.folder import load_checkpoint, load_run_config
from fedstein.settings import flat, to_table
from fedstein.store import Lineage, load_lineage, read_metrics

__all__ = ["Compared", "Setting", "caution", "group", "read_run"]

# What may differ between runs of one setting: none of it changes what is learnt on average.
_NOT_SETTINGS = ("seed", "threads", "recording.", "evaluation.every")
_NOT_OF_ERASURES = ("parent", "parent_sha256", "keep_parent")
_LONGEST = 36  # characters of a label that fits a legend


@dataclass(frozen=True)
class Compared:
    """A run, as its files tell it."""

    path: Path
    settings: dict[str, Any]  # by dotted keys; erasures are among them
    evaluated: dict[int, Evaluated]  # by round
    seconds: float
    rounds: int  # done

    @property
    def essence(self) -> dict[str, Any]:
        """What makes its setting."""
        return {key: value for key, value in self.settings.items() if not key.startswith(_NOT_SETTINGS)}


@dataclass(frozen=True)
class Setting:
    """Runs that differ in nothing but the seed. `label` tells it from the others, `name` does so in legends."""

    label: str
    name: str
    runs: list[Compared]

    @property
    def common(self) -> list[int]:
        """The rounds that all of its runs have evaluated."""
        return sorted(set.intersection(*(set(run.evaluated) for run in self.runs)))

    def at(self, round: int) -> list[Evaluated]:
        """How good its runs were then."""
        return [run.evaluated[round] for run in self.runs]


def read_run(path: Path) -> Compared:
    """What there is to compare of a run folder."""
    config = load_run_config(path)
    evaluated = {line["round"]: one for line in read_metrics(path) if (one := evaluated_in(line)) is not None}
    if not evaluated:
        raise UserError(f"The run '{path}' has no evaluated round yet: there is nothing to compare.")
    checkpoint = load_checkpoint(path)[0]
    short = config.model_copy(update={"posterior": config.posterior.short(config.method.particles)})
    settings = flat(to_table(short)) | _history(load_lineage(path))
    return Compared(path, settings, evaluated, checkpoint.seconds, checkpoint.round)


def _history(lineage: Lineage) -> dict[str, Any]:
    """Its erasures as if they were settings: a model that forgot is another one than a model that did not."""
    erasures = [
        {key: value for key, value in erasure.items() if key not in _NOT_OF_ERASURES}
        for erasure in lineage.table()["erasures"]
    ]
    return flat({"erasures": erasures}) if erasures else {}


def group(runs: Sequence[Compared]) -> list[Setting]:
    """The settings, in the order in which they come."""
    differing = _differing(runs)
    members: dict[str, list[Compared]] = {}
    essences: dict[str, str] = {}
    for run in runs:
        label = ", ".join(_spelled(run, key) for key in differing) or str(run.settings["method.name"])
        essence = json.dumps(run.essence, sort_keys=True)
        while essences.setdefault(label, essence) != essence:  # two settings that the label does not tell apart
            label += " *"
        members.setdefault(label, []).append(run)
    settings = [Setting(label, label, those) for label, those in members.items()]
    return _by_folder(settings) or _by_letter(settings)


def _differing(runs: Sequence[Compared]) -> list[str]:
    """The keys in which the runs differ, the method first."""
    keys = dict.fromkeys(key for run in runs for key in run.essence)
    differing = [key for key in keys if len({json.dumps(run.essence.get(key)) for run in runs}) > 1]
    differing.sort(key=lambda key: (key != "method.name", key == "rounds"))
    # The settings of one method say nothing about another one.
    if "method.name" in differing:
        everywhere = set.intersection(*({key for key in run.essence if key.startswith("method.")} for run in runs))
        differing = [key for key in differing if not key.startswith("method.") or key in everywhere]
    return differing


def _spelled(run: Compared, key: str) -> str:
    if key == "method.name":
        return f"{run.settings[key]}"
    return f"{key.split('.')[-1]} {run.settings.get(key, 'not set')}"


def _by_folder(settings: list[Setting]) -> list[Setting] | None:
    """Named as a sweep names its folders, OUT/NAME/seed-N; None where the folders do not tell the settings apart."""
    folders = [{run.path.resolve().parent.name for run in setting.runs} for setting in settings]
    names = [next(iter(names)) for names in folders if len(names) == 1]
    if len(settings) < 2 or len(set(names)) < len(settings):
        return None
    return [replace(setting, label=name, name=name) for setting, name in zip(settings, names, strict=True)]


def _by_letter(settings: list[Setting]) -> list[Setting]:
    """With letters in legends where labels are long."""
    if max(len(setting.label) for setting in settings) <= _LONGEST or len(settings) > 26:
        return settings
    return [replace(setting, name=chr(ord("A") + i)) for i, setting in enumerate(settings)]


def caution(settings: Sequence[Setting]) -> str:
    """What is to be kept in mind when these are compared; nothing if they are alike."""
    everything = [run.settings for setting in settings for run in setting.runs]
    cautions = []
    unlike = [
        key
        for key in ("data.name", "data.path", "evaluation.split", "evaluation.ece_bins")
        if len({str(one.get(key)) for one in everything}) > 1
    ]
    if unlike:
        cautions.append(f"They differ in {', '.join(unlike)}, so their numbers do not mean the same.")
    for setting in settings:
        seeds = [run.settings.get("seed") for run in setting.runs]
        if len(set(seeds)) < len(seeds):
            cautions.append(f"Of '{setting.label}' several runs have the same seed.")
        short = [str(run.path) for run in setting.runs if run.rounds < run.settings["rounds"]]
        if short:
            cautions.append(f"Not finished: {', '.join(short)}.")
    return f"Careful: {' '.join(cautions)}" if cautions else ""
