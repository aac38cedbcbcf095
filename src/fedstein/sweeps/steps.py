"""A step: one run folder, and what fills it, a training or an erasure. It knows what is left to do.

A step is plain data, so that it can be told to a process of its own (`work.py`), on this machine or on another one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedstein.errors import UserError
from fedstein.runs.folder import load_run_config
from fedstein.runs.forget.complete import is_done
from fedstein.settings import Config, differences, make_config, to_table
from fedstein.store import Forgetting, Side, load_lineage

__all__ = ["Forget", "Step", "result_of"]

_FOUND = ("features", "levels", "center", "scale", "class_names", "agent_ids")  # of `data`, when it was read


@dataclass(frozen=True)
class Forget:
    """An erasure: which run is to forget whom, and how. What is None is chosen to suit, as `fedstein forget` does.

    Args:
        parent: the run folder that is to forget.
        agents: who asked to be forgotten.
        method: how.
        by: who takes a contribution back.
        rounds: in which the agents forget.
        repair: rounds of those who stay, after that.
        handover: what is taken back is shared out; else it is subtracted.
        guarded: false is Forget-SVGD as the letter writes it.
        keep_parent: nothing is purged from the parent.
        overrides: of keys of `uplink`, `evaluation` and `recording`, as `key=value`.
    """

    parent: Path
    agents: tuple[int, ...]
    method: Forgetting
    by: Side | None = None
    rounds: int | None = None
    repair: int | None = None
    handover: bool = True
    guarded: bool = True
    keep_parent: bool = False
    overrides: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        """As `runs.forget.request.ask` takes them; a request is known again by exactly these."""
        plain = {name: value for name, value in asdict(self).items() if name not in ("parent", "agents", "method")}
        overrides = plain.pop("overrides")
        return plain | ({"overrides": list(overrides)} if overrides else {})

    def unlike(self, run: Path) -> list[str]:
        """How the erasure in a run folder differs from this one, one line a key."""
        lineage, config = load_lineage(run), load_run_config(run, careful=False)
        if not lineage:
            return ["it is of a training, not of an erasure"]
        asked = {"parent": str(self.parent.resolve()), "agents": sorted(self.agents), "method": self.method}
        asked |= {name: value for name, value in self.options.items() if value is not None and name != "overrides"}
        there = json.loads(lineage.newest.model_dump_json())
        there["agents"] = sorted(there["agents"])
        wanted = make_config(to_table(config), self.overrides)
        return [
            *differences({name: there[name] for name in asked}, asked),
            *differences(to_table(config), to_table(wanted)),
        ]


@dataclass(frozen=True)
class Step:
    """One run folder and what fills it.

    Args:
        folder: the run folder.
        work: the config to train, or the erasure.
        rounds: that it does, for a progress bar.
        inherited: rounds that are in the folder from the run that it began from.
        may_diverge: the job goes on if particles do not stay finite.
    """

    folder: Path
    work: Config | Forget
    rounds: int = 0
    inherited: int = 0
    may_diverge: bool = False

    @property
    def threads(self) -> int:
        """That its process may use: an erasure has those of the run that it begins from."""
        if isinstance(self.work, Config):
            return self.work.threads
        there = (self.work.parent / "config.toml").is_file()
        return load_run_config(self.work.parent, careful=False).threads if there else 1

    def unlike(self) -> list[str]:
        """How what is in its folder differs from it, one line a key; none where there is nothing yet."""
        if not (self.folder / "config.toml").is_file():
            return []
        if isinstance(self.work, Forget):
            return self.work.unlike(self.folder)
        there = load_run_config(self.folder, careful=False)
        changed = differences(to_table(there), to_table(_as_written_down(self.work, there)))
        return [*changed, "it is of an erasure, not of a training"] if load_lineage(self.folder) else changed

    def check(self) -> None:
        """Refuse a folder that is of something else."""
        if changed := self.unlike():
            raise UserError(
                f"The run folder {self.folder} is of other settings ({'; '.join(changed)}). "
                "Delete it, or choose another '--out'."
            )

    def finished(self) -> bool:
        """Nothing is left to do."""
        result = result_of(self.folder)
        if result is None or result["interrupted"] or not (self.folder / "config.toml").is_file():
            return False
        return is_done(self.folder) if isinstance(self.work, Forget) else result.get("rounds") == self.work.rounds

    def done(self) -> int:
        """Rounds that are done, for a progress bar."""
        try:
            with (self.folder / "metrics.jsonl").open("rb") as file:
                lines = sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
            return max(0, lines - self.inherited)
        except OSError:
            return 0

    def to_json(self) -> str:
        """What its process has to know."""
        if isinstance(self.work, Config):
            return json.dumps({"folder": str(self.folder), "train": to_table(self.work)})
        asked = asdict(self.work) | {"parent": str(self.work.parent)}
        return json.dumps({"folder": str(self.folder), "forget": asked})

    @classmethod
    def from_json(cls, text: str) -> Step:
        """The same step again."""
        try:
            told = json.loads(text)
            folder = Path(told["folder"])
            if "train" in told:
                return cls(folder, make_config(told["train"]))
            return cls(folder, _forget(told["forget"]))
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, UserError):
                raise
            words = f"{type(error).__name__}: {error}"
            raise UserError(
                f"A step must be one JSON object with 'folder' and 'train' or 'forget'. Got {words}."
            ) from None


def _as_written_down(planned: Config, there: Config) -> Config:
    """A plan with what its run has written down since: a plan that leaves it out does not ask for anything else."""
    data = {key: getattr(there.data, key) for key in _FOUND if not getattr(planned.data, key)}
    if there.data.agent_ids and not planned.data.agent_ids:  # the table has counted them
        data["agents"] = there.data.agents
    model = {} if planned.model.fingerprint else {"fingerprint": there.model.fingerprint}
    if planned.model.way == "auto":
        model["way"] = there.model.way
    posterior = {
        key: getattr(there.posterior, key) for key in ("window", "scale") if getattr(planned.posterior, key) is None
    }
    sections = {
        "data": planned.data.model_copy(update=data),
        "model": planned.model.model_copy(update=model),
        "posterior": planned.posterior.model_copy(update=posterior),
    }
    return planned.model_copy(update=sections)


def _forget(asked: Mapping[str, Any]) -> Forget:
    changed = {"parent": Path(asked["parent"]), "agents": tuple(asked["agents"])}
    return Forget(**(dict(asked) | changed | {"overrides": tuple(asked.get("overrides", ()))}))


def result_of(folder: Path) -> dict[str, Any] | None:
    """The result.json of a run folder, if it is there and whole."""
    try:
        result = json.loads((folder / "result.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return result if isinstance(result, dict) and type(result.get("interrupted")) is bool else None
