"""The config of a run: TOML in, checked settings out, and the problem they describe.

Every key has a default, a type and a range; an unknown one is refused with the nearest right one.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, ValidationError, field_validator, model_validator

from fedstein.engines import Schedule
from fedstein.errors import UserError, nearest
from fedstein.methods import DSVGD, METHODS, Method
from fedstein.models import Activation, Precision
from fedstein.problem import Init
from fedstein.uplink import Contract, Uplink, groups_of, parse_budget, plan

__all__ = [
    "MOST_ROUNDS",
    "Config",
    "DataConfig",
    "ErasureConfig",
    "Forgetting",
    "ModelConfig",
    "Side",
    "UplinkConfig",
    "differences",
    "flat",
    "load_config",
    "load_preset",
    "make_config",
    "presets",
    "read_toml",
    "to_table",
    "to_toml",
]


Tracker = Literal["tensorboard", "mlflow"]
Forgetting = Literal["forget-svgd", "take-back", "retrain"]
Side = Literal["agent", "server"]
MOST_ROUNDS = 1_000_000_000


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class DataConfig(_Section):
    """Where the examples come from and who holds them."""

    name: Literal["fashion-mnist", "digits", "npz", "folder", "synthetic-gaussian", "synthetic-mixture"] = Field(
        "fashion-mnist", description="source; 'fedstein data list' describes them"
    )
    path: str | None = Field(None, description="folder of Fashion-MNIST, your .npz file, or your folder of them")
    agents: int = Field(10, ge=1, le=10_000_000, description="K, how many agents")
    partition: Literal["iid", "class-pairs", "dirichlet", "indices"] = Field("iid", description="who holds what")
    examples: int | None = Field(None, ge=1, description="examples of each agent; all, in equal parts, if left out")
    concentration: float = Field(0.5, gt=0, allow_inf_nan=False, description="of partition dirichlet; small = unequal")
    indices: str | None = Field(None, description="JSON file with one list of indices an agent (partition indices)")
    validation: int = Field(0, ge=0, description="training examples held out from all agents, to choose settings on")
    seed: int | None = Field(None, ge=0, description="of who holds what; the run's seed if left out")


class ModelConfig(_Section):
    """The network."""

    hidden: tuple[int, ...] = Field((100,), description="widths of the hidden layers; [] is logistic regression")
    activation: Activation = Field("relu", description="between the layers")
    features: str | None = Field(
        None, description="a run whose first particle's hidden layers are frozen: only a last layer is then learnt"
    )
    precision: Precision = Field("float32", description="bf16: bfloat16 products, for CPUs with units for them")

    @field_validator("hidden", mode="before")
    @classmethod
    def _widths(cls, value: Any) -> Any:
        value = tuple(value) if isinstance(value, list) else value
        if isinstance(value, tuple) and any(isinstance(w, int) and w < 1 for w in value):
            raise ValueError(f"widths must be at least 1. Got {list(value)} instead.")
        return value


class PretrainConfig(_Section):
    """FedAvg of the whole network first, all agents in every round; then only its last layer is learnt."""

    rounds: int = Field(0, ge=0, le=MOST_ROUNDS, description="rounds of pre-training; 0: none")
    local_steps: int = Field(5, ge=1, description="gradient steps of each agent in a round")
    step_size: float = Field(0.1, gt=0, le=1e30, allow_inf_nan=False, description="their size")


class PriorConfig(_Section):
    """The prior N(0, std^2 I), and where particles start."""

    std: float = Field(1.0, ge=1e-15, le=1e15, allow_inf_nan=False, description="standard deviation of the prior")
    init: Init = Field(
        "fan-in", description="fan-in: weights N(0, 1/(fan_in + 1)), biases 0; prior: draws of the prior"
    )


class UplinkConfig(_Section):
    """What an upload may cost, and how it is made."""

    budget: str | int | None = Field(
        None, description="bits (79510), multiples of the dimension (0.5d) or bytes (10kB); no limit if left out"
    )
    sharing: float = Field(1.0, gt=0, le=1, description="fraction of the particles that share one sparsity pattern")
    bits_per_entry: int = Field(5, ge=2, le=16, description="N_b: one sign bit, the rest magnitude")
    feedback: bool = Field(False, description="agents keep what they could not send and add it next time")
    positions: Literal["auto", "golomb", "range", "enumerative", "informed"] = Field(
        "auto", description="position coder; auto: the shortest; informed: uses how far entries have moved"
    )
    entries: Literal["fixed", "adaptive"] = Field(
        "fixed", description="fixed: N_b bits an entry; adaptive: entropy coding, and as many entries as fit"
    )
    common: bool = Field(
        False,
        description="a frame may give all particles of a group the same values, where that carries more of the update",
    )
    a_max: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="end of the quantiser's range; the largest magnitude if left out"
    )
    record_frames: bool = Field(False, description="keep every frame in the run folder")

    def terms(self, method: Method, dim: int) -> Uplink | None:
        """The uplink of a run with this method and so many parameters; None without a budget.

        Raises:
            UserError: the settings do not fit each other, or the budget is too small for one entry.
        """
        if self.budget is None:
            return None
        if method.central:
            raise UserError(f"The 'uplink.budget' has no meaning with method '{method.name}': nothing is uploaded.")
        if self.entries == "adaptive" and self.positions in ("golomb", "enumerative"):
            raise UserError(
                f"The 'uplink.positions' must be auto, range or informed with adaptive entries. Got '{self.positions}'."
            )
        if self.common and self.positions in ("golomb", "enumerative"):
            raise UserError(
                f"The 'uplink.positions' must be auto, range or informed with common values. Got '{self.positions}'."
            )
        contract = Contract(
            dim=dim,
            particles=method.particles,
            groups=groups_of(self.sharing, method.particles),
            bits_per_entry=self.bits_per_entry,
            budget_bits=parse_budget(self.budget, dim),
            a_max=self.a_max,
            positions=self.positions,
            entries=self.entries,
            common=self.common,
        )
        plan(contract)  # refuses a budget that is too small before any work is done
        return Uplink(contract, self.feedback)


class EvaluationConfig(_Section):
    """When and on what the particles are judged."""

    every: int = Field(50, ge=1, description="rounds between evaluations")
    split: Literal["test", "validation"] = Field("test", description="validation needs data.validation > 0")
    ece_bins: int = Field(15, ge=1, le=10_000, description="bins of equal width of the ECE")


class RecordingConfig(_Section):
    """What a run folder keeps, and who else is told."""

    checkpoint_every: int | None = Field(
        None,
        ge=1,
        description="rounds between checkpoints; if left out, 50 rounds or two minutes, "
        "or longer where that would cost more than 3 % of the time",
    )
    keep_checkpoints: int = Field(3, ge=1, description="how many of the newest are kept")
    escrow: bool = Field(
        False,
        description="the server keeps the sum of what it applied of each agent, so that it can take it back "
        "without the agent (factor linear)",
    )
    trackers: tuple[Tracker, ...] = Field((), description="tensorboard, mlflow: extras of the same names")

    @field_validator("trackers", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        value = (value,) if isinstance(value, str) else value
        return tuple(value) if isinstance(value, list) else value


class ErasureConfig(_Section):
    """An erasure, as `fedstein forget` writes it into the config of the new run."""

    agents: tuple[Annotated[int, Field(ge=0)], ...] = Field(description="the agents that are forgotten")
    method: Forgetting = Field(description="how")
    by: Side = Field("agent", description="who takes a site back: its agent, or the server")
    start: int = Field(0, ge=0, description="the round that the parent had reached; 0: from scratch")
    rounds: int = Field(0, ge=0, description="rounds in which the agents themselves forget")
    repair: int = Field(0, ge=0, description="rounds after that, of the agents that stay")
    handover: bool = Field(
        True, description="what is taken back is shared out to the sites of those who stay; false: it is subtracted"
    )
    guarded: bool = Field(True, description="false: Forget-SVGD as the letter writes it")
    keep_parent: bool = Field(False, description="nothing is purged from the parent")
    parent: str = Field("", description="the run folder that it began from")
    parent_sha256: str = Field("", description="of the particles that it began from")

    @field_validator("agents", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        value = tuple(value) if isinstance(value, list) else value
        if isinstance(value, tuple) and (not value or len({str(agent) for agent in value}) < len(value)):
            raise ValueError(f"agents must be some, none of them twice. Got {list(value)} instead.")
        return value

    @property
    def end(self) -> int:
        """The round after which the erasure is complete."""
        return self.start + self.rounds + self.repair


class Config(_Section):
    """A whole run."""

    seed: int = Field(0, ge=0, description="of every random draw")
    rounds: int = Field(200, ge=1, le=MOST_ROUNDS, description="rounds of training")
    threads: int | None = Field(None, ge=1, le=1024, description="CPU threads; all cores if left out")
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    pretrain: PretrainConfig = PretrainConfig()
    prior: PriorConfig = PriorConfig()
    method: SerializeAsAny[Method] = DSVGD()
    schedule: Schedule = Schedule()
    uplink: UplinkConfig = UplinkConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    recording: RecordingConfig = RecordingConfig()
    erasures: tuple[ErasureConfig, ...] = ()

    @property
    def erased(self) -> tuple[int, ...]:
        """The agents that were forgotten, in this run or before it."""
        return tuple(sorted({agent for erasure in self.erasures for agent in erasure.agents}))

    @property
    def training_rounds(self) -> int:
        """Rounds of training before anything was forgotten; all of them where there was no erasure."""
        return next((erasure.start for erasure in self.erasures if erasure.start > 0), self.rounds)

    @field_validator("erasures", mode="before")
    @classmethod
    def _all_listed(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.pretrain.rounds and self.model.features is not None:
            raise ValueError("pretrain.rounds must be 0 where model.features names a run. Got both.")
        if self.pretrain.rounds and (not self.model.hidden or self.data.name.startswith("synthetic")):
            raise ValueError("pretrain.rounds must be 0 where the network has no hidden layer. Got more.")
        if self.recording.escrow and getattr(self.method, "factor", None) != "linear":
            raise ValueError("recording.escrow must be false unless method.factor is 'linear'. Got true.")
        return self

    @field_validator("method", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        settings = dict(value)
        name = settings.pop("name", "dsvgd")
        if not isinstance(name, str) or name not in METHODS:
            raise ValueError(
                f"name must be one of {', '.join(METHODS)}. Got {name!r} instead. {nearest(str(name), METHODS)}".rstrip(
                    "."
                )
            )
        return METHODS[name].model_validate(settings)


def presets() -> list[str]:
    """The names of the settings that come with fedstein."""
    names = [file.name for file in files("fedstein.presets").iterdir()]
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def load_preset(name: str, overrides: Sequence[str] = ()) -> Config:
    """Settings that come with fedstein, by name, with overrides."""
    if name not in presets():
        raise UserError(f"The '--preset' must be one of {', '.join(presets())}. Got {name!r} instead.")
    text = files("fedstein.presets").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return make_config(tomllib.loads(text), overrides)


def make_config(table: Mapping[str, Any] | None = None, overrides: Sequence[str] = ()) -> Config:
    """A checked config from a table and `dotted.key=value` overrides.

    >>> make_config(overrides=["method.particles=5", "data.name=digits"]).method.particles
    5
    """
    merged: dict[str, Any] = json.loads(json.dumps(dict(table or {}), default=str))
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise UserError(f"The '--set' must look like dotted.key=value. Got {override!r} instead.")
        place = merged
        *sections, last = key.strip().split(".")
        if len(sections) > 2 or not override.isprintable():
            raise UserError(f"The '--set' must look like dotted.key=value, in plain text. Got {override[:80]!r}.")
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise UserError(f"The '--set {override}' does not fit: '{section}' is a value, not a table.")
        place[last] = _value(text.strip())
    try:
        return Config.model_validate(merged)
    except ValidationError as error:
        raise UserError(_explain(error, merged)) from None


def _value(text: str) -> Any:
    """A TOML value; a bare word is a string, so that --set data.name=digits needs no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def load_config(path: Path | None, overrides: Sequence[str] = ()) -> Config:
    """The config in a TOML file (the defaults if None), with overrides."""
    return make_config({} if path is None else read_toml(path, "config"), overrides)


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The table in a user's file; `what` it is, for the words of an error."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UserError(f"Cannot read the {what} {path}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"The {what} {path} is not TOML: {error}.") from error


def to_table(config: Config) -> dict[str, Any]:
    """The whole config, defaults included, as plain values that `make_config` reads back as the same config."""
    table: dict[str, Any] = json.loads(config.model_dump_json(exclude_none=True))
    table["method"] = {"name": config.method.name} | table["method"]
    return table


def to_toml(config: Config) -> str:
    """The same as TOML."""
    return tomli_w.dumps(to_table(config))


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """How two tables of settings differ, one line a key.

    >>> differences({"seed": 0, "method": {"batch": 100}}, {"seed": 0, "method": {"batch": 50}})
    ['method.batch: 100 -> 50']
    """
    before, after = flat(old), flat(new)
    return [
        f"{key}: {before.get(key, 'not set')} -> {after.get(key, 'not set')}"
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]


def flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their dotted keys.

    >>> flat({"seed": 0, "method": {"batch": 100}})
    {'seed': 0, 'method.batch': 100}
    """
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, list) and value and all(isinstance(part, Mapping) for part in value):
            value = {f"{number}.{inner}": deep for number, part in enumerate(value) for inner, deep in part.items()}
        if isinstance(value, Mapping):
            found |= {f"{key}.{inner}": deep for inner, deep in value.items()}
        else:
            found[key] = value
    return found


def _explain(error: ValidationError, table: Mapping[str, Any]) -> str:
    """One line for each mistake: which key, what was expected, what came, what to do."""
    lines = []
    for problem in error.errors():
        path = [str(part) for part in problem["loc"]]
        key = ".".join(path)
        if problem["type"] == "extra_forbidden":
            lines.append(f"Unknown config key '{key}'. {nearest(path[-1], _known(path[:-1], table))}")
        else:
            expected = problem["msg"].removeprefix("Value error, ").removeprefix("Input should be ").rstrip(".")
            came = "" if "Got " in expected else f" Got {str(problem['input'])[:80]!r} instead."
            if not isinstance(problem["input"], str):
                came = came.replace("'", "")
            end = "" if expected.endswith("?") else "."
            lines.append(f"Config key '{key}'{':' if 'must be' in expected else ' must be'} {expected}{end}{came}")
    return "\n".join(lines)


def _known(section: Sequence[str], table: Mapping[str, Any]) -> list[str]:
    if not section:
        return list(Config.model_fields)
    if section[0] == "erasures":
        return list(ErasureConfig.model_fields)
    if section[0] == "method":
        return ["name", *METHODS[table.get("method", {}).get("name", "dsvgd")].model_fields]
    return list(type(getattr(Config(), section[0])).model_fields)
