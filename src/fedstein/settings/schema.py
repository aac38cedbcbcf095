"""The config of a run: every key has a default, a type and a range.

A section stands in the room that it is about (`data/`, `models/`, `methods/`, `protocol/`); here they become a whole.
What happened to a run is not in it: that is its lineage (`store/lineage.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, SerializeAsAny, field_validator, model_validator

from fedstein.checked import Checked
from fedstein.data import DataConfig
from fedstein.devices import check_device
from fedstein.likelihoods import Categorical, Likelihood, likelihood_of
from fedstein.methods import DSVGD, METHODS, Method
from fedstein.models import ModelConfig, PriorConfig
from fedstein.posterior import Posterior
from fedstein.protocol.schedule import Schedule
from fedstein.protocol.uplink import Uplink
from fedstein.trackers import TRACKERS

__all__ = ["MOST_ROUNDS", "Config", "EvaluationConfig", "PretrainConfig", "RecordingConfig"]

MOST_ROUNDS = 1_000_000_000


class PretrainConfig(Checked):
    """FedAvg of the whole network first, all agents in every round; then only its last layer is learnt."""

    rounds: int = Field(0, ge=0, le=MOST_ROUNDS, description="rounds of pre-training; 0: none")
    local_steps: int = Field(5, ge=1, description="gradient steps of each agent in a round")
    step_size: float = Field(0.1, gt=0, le=1e30, allow_inf_nan=False, description="their size")


class EvaluationConfig(Checked):
    """When and on what the particles are judged."""

    every: int = Field(50, ge=1, description="rounds between evaluations")
    split: Literal["test", "validation"] = Field("test", description="validation needs data.validation > 0")
    ece_bins: int = Field(15, ge=1, le=10_000, description="bins of equal width of the ECE")


class RecordingConfig(Checked):
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
    trackers: tuple[Annotated[str, AfterValidator(TRACKERS.check)], ...] = Field(
        (), description="tensorboard, mlflow: extras of the same names"
    )

    @field_validator("trackers", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        value = (value,) if isinstance(value, str) else value
        return tuple(value) if isinstance(value, list) else value


class Config(Checked):
    """A whole run."""

    seed: int = Field(0, ge=0, description="of every random draw")
    rounds: int = Field(200, ge=1, le=MOST_ROUNDS, description="rounds of training")
    threads: int = Field(
        2,
        ge=1,
        le=1024,
        description="CPU threads of a visit, on every engine; their number decides the last bits of a result",
    )
    device: Annotated[str, AfterValidator(check_device)] = Field(
        "cpu",
        description="on which visits and predictions are computed: cpu, cuda, cuda:1 or mps, or auto for the first of "
        "cuda, mps and cpu that is there; another kind gives other last bits",
    )
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    pretrain: PretrainConfig = PretrainConfig()
    prior: PriorConfig = PriorConfig()
    likelihood: SerializeAsAny[Likelihood] = Categorical()
    method: SerializeAsAny[Method] = DSVGD()
    schedule: Schedule = Schedule()
    uplink: Uplink = Uplink()
    posterior: Posterior = Posterior()
    evaluation: EvaluationConfig = EvaluationConfig()
    recording: RecordingConfig = RecordingConfig()

    @property
    def is_given(self) -> bool:
        """Whether model and data were given in Python, and cannot be made again from here."""
        return self.data.name == "given"

    def lengthened(self, rounds: int) -> Self:
        """The same with so many rounds; steps that were to shrink over all of them do so over these."""
        method = self.method
        if method.anneal_over == self.rounds:
            method = method.model_copy(update={"anneal_over": rounds})
        return self.model_copy(update={"rounds": rounds, "method": method})

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.pretrain.rounds and self.model.features is not None:
            raise ValueError("pretrain.rounds must be 0 where model.features names a run. Got both.")
        if self.pretrain.rounds and self.model.module is not None:
            raise ValueError("pretrain.rounds must be 0 where model.module names a network: give it model.weights.")
        if self.pretrain.rounds and (not self.model.hidden or self.data.synthetic):
            raise ValueError("pretrain.rounds must be 0 where the network has no hidden layer. Got more.")
        if self.recording.escrow and not self.method.can_be_taken_back:
            raise ValueError(
                "recording.escrow must be false unless the method can be taken back, as dsvgd with method.factor = "
                "'linear' can. Got true."
            )
        return self

    @field_validator("likelihood", mode="before")
    @classmethod
    def _likelihood(cls, value: Any) -> Any:
        return likelihood_of(value)

    @field_validator("method", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        settings = dict(value)
        name = settings.pop("name", "dsvgd")
        if not isinstance(name, str) or name not in METHODS:
            raise ValueError(f"name {METHODS.check_words(str(name))}")
        return METHODS[name].model_validate(settings)
