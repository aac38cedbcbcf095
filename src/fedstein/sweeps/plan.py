"""From SWEEP.toml to the runs that it means.

seeds = [0, 1, 2]                       # each setting once for each; [0] if left out
preset = "unlearning"                   # settings to begin from, if wished
choose = false                          # what is left out is as `fedstein methods` has it; else it is chosen to suit

[base]                                  # what all runs have, as in a config file
rounds = 1000

[grid]                                  # every combination of these values
"method.step_size" = [0.1, 0.2]
"uplink.budget" = ["0.5d", "1.0d"]

[[list]]                                # and each of these with every combination
name = "fedavg"
"method.name" = "fedavg"
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from fedstein.errors import UserError, nearest
from fedstein.runs.verbs import with_whole_paths
from fedstein.settings import Config, choose_config, load_preset, make_config, presets, read_toml, to_table
from fedstein.sweeps.jobs import Job
from fedstein.sweeps.steps import Step

__all__ = ["MOST_RUNS", "Planned", "load_sweep", "plan_sweep"]

MOST_RUNS = 100_000
_KEYS = ("seeds", "preset", "choose", "base", "grid", "list")


@dataclass(frozen=True)
class Planned:
    """One run of a sweep: its name (without the seed), what is special about it, its whole config."""

    name: str
    settings: dict[str, Any]
    config: Config

    def job(self, out: Path) -> Job:
        """In a folder of its own under `out`."""
        folder = out / self.name / f"seed-{self.config.seed}"
        step = Step(folder, self.config, rounds=self.config.rounds)
        return Job(f"{self.name}/seed-{self.config.seed}", (step,), self.config.seed, self.settings)


def load_sweep(path: Path) -> list[Planned]:
    """The runs that a file means."""
    return plan_sweep(read_toml(path, "sweep"), choosing=True)


def plan_sweep(table: Mapping[str, Any], choosing: bool = False) -> list[Planned]:
    """The runs that a table means, all settings of the first seed first.

    Args:
        table: of a SWEEP.toml.
        choosing: what is left out is chosen to suit, as `fedstein train` does; not so where a preset is named or the
            table says `choose = false`.

    >>> grid = {"method.particles": [2, 5]}
    >>> [run.name for run in plan_sweep({"seeds": [0, 1], "grid": grid})]
    ['particles=2', 'particles=5', 'particles=2', 'particles=5']
    """
    for key in table:
        if key not in _KEYS:
            raise UserError(f"Unknown sweep key '{key}'. {nearest(key, _KEYS)}")
    seeds = table.get("seeds", [0])
    whole = isinstance(seeds, list) and all(type(seed) is int and seed >= 0 for seed in seeds)
    if not whole or not seeds or len(set(seeds)) < len(seeds):
        raise UserError(f"The sweep's 'seeds' must be a list of different whole numbers. Got {seeds!r} instead.")
    if type(choose := table.get("choose", choosing)) is not bool:
        raise UserError(f"The sweep's 'choose' must be true or false. Got {choose!r} instead.")
    choosing = choosing and choose and "preset" not in table
    base = _base(table)
    grid = _grid(table.get("grid", {}))
    entries = _entries(table.get("list", [{}]))
    if math.prod([len(seeds), len(entries), *map(len, grid.values())]) > MOST_RUNS:
        raise UserError(f"A sweep may have {MOST_RUNS:,} runs. This one would have more.")
    combinations = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    settings: dict[str, dict[str, Any]] = {}
    for (name, entry), combination in product(entries, combinations):
        if twice := sorted(set(entry) & set(_dotted(combination))):
            raise UserError(f"The sweep's key '{twice[0]}' must be in 'grid' or in 'list'. It is in both.")
        here = entry | combination
        label = ",".join([*([name] if name else []), *_spelled(combination if name else here)]) or "run"
        if label in settings:
            raise UserError(
                f"Two settings of the sweep would be in the same folder '{label}'. Put them under [[list]], each "
                "with a 'name' of its own."
            )
        settings[label] = here
    return [
        Planned(label, here, _config(base, here, seed, label, choosing))
        for seed in seeds
        for label, here in settings.items()
    ]


def _base(table: Mapping[str, Any]) -> dict[str, Any]:
    base = table.get("base", {})
    if not isinstance(base, Mapping):
        raise UserError(f"The sweep's 'base' must be a table, as in a config file. Got {base!r} instead.")
    if "seed" in base:
        raise UserError("The sweep's 'base' must not have 'seed': 'seeds' is the place.")
    preset = table.get("preset")
    if preset is not None and preset not in presets():
        raise UserError(f"The sweep's 'preset' must be one of {', '.join(presets())}. Got {preset!r} instead.")
    whole = to_table(load_preset(preset)) if preset is not None else {}
    whole.pop("seed", None)
    for key, value in _dotted(base).items():
        whole = _merged(whole, _nested(key, value))
    return whole


def _grid(grid: Any) -> dict[str, list[Any]]:
    if not isinstance(grid, Mapping):
        raise UserError(f"The sweep's 'grid' must be a table of lists. Got {grid!r} instead.")
    lists = _dotted(grid)
    for key, values in lists.items():
        if not isinstance(values, list) or not values or len({_text(value) for value in values}) < len(values):
            raise UserError(f"The sweep's 'grid.{key}' must be a list of different values. Got {values!r} instead.")
    if "seed" in lists:
        raise UserError("The sweep's 'grid' must not have 'seed': 'seeds' is the place.")
    return lists


def _entries(listed: Any) -> list[tuple[str, dict[str, Any]]]:
    if not isinstance(listed, list) or not listed or not all(isinstance(entry, Mapping) for entry in listed):
        raise UserError("The sweep's 'list' must be tables, each under [[list]]. Got something else.")
    entries = []
    for entry in listed:
        name = entry.get("name", "")
        if not isinstance(name, str) or (name and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._=,+-]{0,99}", name)):
            raise UserError(f"A 'name' in the sweep's list must be letters, digits and . _ = , + -. Got {name!r}.")
        if name in ("results.csv", "lock"):
            raise UserError(f"A 'name' in the sweep's list must not be that of the sweep's own file {name!r}.")
        if "seed" in entry:
            raise UserError("The sweep's 'list' must not have 'seed': 'seeds' is the place.")
        entries.append((name, _dotted({key: value for key, value in entry.items() if key != "name"})))
    return entries


def _dotted(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    keys: dict[str, Any] = {}
    for key, value in table.items():
        keys |= _dotted(value, f"{before}{key}.") if isinstance(value, Mapping) else {f"{before}{key}": value}
    return keys


def _spelled(settings: Mapping[str, Any]) -> list[str]:
    """Settings in a folder's name: the last word of a key where that is enough to tell it from the others."""
    last = [key.rsplit(".", 1)[-1] for key in settings]
    words = []
    for key, value in settings.items():
        short = key.rsplit(".", 1)[-1]
        key = short if last.count(short) == 1 else key
        words.append(re.sub(r"[^A-Za-z0-9._=+-]+", "_", f"{key}={_text(value)}")[:60])
    long = ",".join(words)
    return words if len(long) <= 100 else [long[:90], hashlib.sha256(long.encode()).hexdigest()[:8]]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _nested(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return dict(value)


def _config(base: Mapping[str, Any], settings: Mapping[str, Any], seed: int, label: str, choosing: bool) -> Config:
    table = _merged(base, {"seed": seed})
    for key, value in settings.items():
        table = _merged(table, _nested(key, value))
    # One thread, so that a run is the same however many run beside it.
    table.setdefault("threads", 1)
    try:
        return with_whole_paths(choose_config(table)[0] if choosing else make_config(table))
    except UserError as error:
        raise UserError(f"The sweep's setting '{label}': {error}") from None


def _merged(table: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(table)
    for key, value in more.items():
        old = merged.get(key)
        if old is not None and isinstance(old, Mapping) != isinstance(value, Mapping):
            raise UserError(f"The sweep's key '{key}' must be a value or a table. It is {old!r} and {value!r}.")
        merged[key] = _merged(old, value) if isinstance(old, Mapping) else value
    return merged
