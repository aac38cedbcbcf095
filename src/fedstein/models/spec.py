"""The sections `model` and `prior` of a config, and the network that they mean.

An agent elsewhere makes its network from these as well: nothing in them may be a path that a server chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from fedstein.by_name import NAME
from fedstein.checked import Checked
from fedstein.devices import CPU
from fedstein.errors import UserError
from fedstein.inference import GaussianPrior
from fedstein.likelihoods import Likelihood
from fedstein.models.base import ParticleModel
from fedstein.models.dense import Activation, DenseStack, Precision
from fedstein.models.head import split_head
from fedstein.models.module import particle_model
from fedstein.models.named import (
    Values,
    exported,
    fingerprint,
    frozen_values,
    listing,
    load_weights,
    make_module,
    on_cpu,
    refuse_other_values,
    unlike_listing,
)
from fedstein.models.refusals import Takes, takes
from fedstein.models.task import Init, Task
from fedstein.models.ways import Way

__all__ = ["FEATURES", "ModelConfig", "Network", "Prepare", "PriorConfig", "network"]

FEATURES = "features"  # what is frozen of a built-in network: one particle of the whole of it

Prepare = Callable[[Tensor], Tensor]
"""Raw inputs to what the model takes: the frozen network before a last layer."""


class ModelConfig(Checked):
    """The network."""

    hidden: tuple[int, ...] = Field((100,), description="widths of the hidden layers; [] is logistic regression")
    activation: Activation = Field("relu", description="between the layers")
    module: str | None = Field(
        None,
        pattern=NAME,
        max_length=300,
        description="your own network instead: 'package.nets:make_cnn', a callable that returns an nn.Module",
    )
    args: dict[str, Any] = Field({}, description="what the callable is given, by name")
    particles: tuple[str, ...] = Field(
        (), description="patterns of parameter names, ['head.*']: these are learnt, the others are frozen; [] is all"
    )
    weights: str | None = Field(None, description="safetensors file with the values of what is frozen, or of all")
    way: Way | Literal["auto"] = Field(
        "auto",
        description="how several particles of your own network are computed; auto measures once, and the run's "
        "config.toml says what was chosen",
    )
    fingerprint: str | None = Field(
        None,
        pattern="^[0-9a-f]{32}$",
        description="of the names and shapes of your network's parameters; the run writes it down",
    )
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

    @field_validator("particles", mode="before")
    @classmethod
    def _patterns(cls, value: Any) -> Any:
        if isinstance(value, str) and value.startswith("["):  # a shell takes the quotes away, and it is no list then
            raise ValueError(f"must be a list of patterns, in quotes for the shell. Got {value!r} instead.")
        value = (value,) if isinstance(value, str) else value
        return tuple(value) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.module is None and (self.args or self.particles or self.weights):
            raise ValueError("model.args, model.particles and model.weights need model.module. Got none.")
        if self.module is not None and self.features is not None:
            raise ValueError("model.features is for networks of model.hidden: use model.particles and model.weights.")
        return self


class PriorConfig(Checked):
    """The prior N(0, std^2 I), and where particles start."""

    std: float = Field(1.0, ge=1e-15, le=1e15, allow_inf_nan=False, description="standard deviation of the prior")
    init: Init = Field(
        "fan-in",
        description="fan-in: weights N(0, 1/(fan_in + 1)), biases 0; prior: draws of the prior; module: around the "
        "values of your own network",
    )
    spread: float = Field(
        0.01, ge=0, le=1e3, allow_inf_nan=False, description="init module: standard deviation around those values"
    )

    def task(self, network: Network) -> Task:
        """What is to be learnt with this prior."""
        return Task(network.model, GaussianPrior(self.std), self.init, network.start, self.spread)


@dataclass(frozen=True, repr=False)
class Network:
    """A network as particles.

    Args:
        model: what is learnt.
        prepare: makes raw inputs into those of the model, by what is frozen before it; None: they are the same.
        frozen: what the run keeps of the network, beside its particles: the same for everybody.
        start: (dim,) the learnt parameters' own values, where particles start around them.
        parameters: the listing of a network by name.
        size: all parameters, the frozen ones included.
        knows: SHA-256 of the particles whose export `model.weights` was: what it is made from has seen a federation.
        takes: what raw inputs must be.
    """

    model: ParticleModel
    prepare: Prepare | None = None
    frozen: Values | None = None
    start: Tensor | None = None
    parameters: Mapping[str, str] | None = None
    size: int = 0
    knows: str | None = None
    takes: Takes = "numbers"


def network(
    model: ModelConfig,
    prior: PriorConfig,
    likelihood: Likelihood,
    inputs: torch.Size,
    outputs: int,
    seed: int,
    frozen: Values | None = None,
    parameters: Mapping[str, str] | None = None,
    knows: str | None = None,
    device: torch.device = CPU,
) -> Network:
    """The network that settings mean.

    Args:
        model: the section.
        prior: the section.
        likelihood: of the targets, given the outputs.
        inputs: the shape of one raw input.
        outputs: how many numbers it must give for an input.
        seed: of the run.
        frozen: what a run has kept of it; what the settings say if None.
        parameters: the listing that a run has kept, for the words of a refusal.
        knows: what a run has kept of where `model.weights` came from.
        device: where it computes.
    """
    if model.module is not None:
        return _by_name(model, prior, likelihood, inputs, seed, frozen, parameters, knows, device)
    if prior.init == "module":
        raise UserError("The 'prior.init' module needs 'model.module': the built-in network has no values of its own.")
    sizes = [inputs.numel(), *model.hidden, outputs]
    whole = DenseStack(sizes, model.activation, model.precision, likelihood, device)
    if frozen is None:
        return Network(whole, size=whole.dim)
    features = frozen.get(FEATURES)
    if features is None or len(features) != whole.dim:
        came = "none" if features is None else f"{len(features):,}"
        raise UserError(f"The frozen network must have {whole.dim:,} parameters. Got {came} instead.")
    last = DenseStack(sizes[-2:], model.activation, model.precision, likelihood, device)
    return Network(last, partial(_features, whole, features), frozen, size=whole.dim)


def _features(whole: DenseStack, features: Tensor, x: Tensor) -> Tensor:
    """What is frozen, done on the device; from the CPU to the CPU."""
    return whole.features(features.to(whole.device), x.to(whole.device)).cpu()


def _by_name(
    model: ModelConfig,
    prior: PriorConfig,
    likelihood: Likelihood,
    inputs: torch.Size,
    seed: int,
    frozen: Values | None,
    parameters: Mapping[str, str] | None,
    knows: str | None,
    device: torch.device,
) -> Network:
    assert model.module is not None
    module = make_module(model.module, model.args, seed, model.particles, frozen)
    module = on_cpu(module, f"The 'model.module' {model.module!r}", device)
    now = listing(module)
    if model.fingerprint is None:
        fresh = make_module(model.module, model.args, seed, model.particles)
        if (again := listing(fresh)) != now:
            raise UserError(
                f"The 'model.module' {model.module!r} must return the same network every time: "
                f"{unlike_listing(now, again)}."
            )
        if frozen is None:
            why = "its random numbers must be torch's, numpy's or Python's global ones"
            refuse_other_values(
                module, fresh, f"The 'model.module' {model.module!r} must return the same network every time: {why}"
            )
    elif fingerprint(now) != model.fingerprint:
        how = "" if parameters is None else f": {unlike_listing(parameters, now)}"
        raise UserError(f"The 'model.module' {model.module!r} is not the network of this run any more{how}.")
    learnt = [value for value in module.parameters() if value.requires_grad]
    if not learnt:
        raise UserError(f"The 'model.module' {model.module!r} must have parameters to learn. None requires a gradient.")
    if frozen is None and model.weights is not None:
        load_weights(model.weights, module)
        knows = exported(model.weights)
        if model.fingerprint is None:
            refuse_other_values(module, fresh, "What is frozen must be float32 to be kept", kept=False)
    start = torch.cat([value.detach().reshape(-1) for value in learnt]) if prior.init == "module" else None
    kept = frozen_values(module)
    if start is not None:
        kept |= {name: value.detach().clone() for name, value in module.named_parameters() if value.requires_grad}
    # The same on every machine, whatever data it has: which path is taken decides the last bits.
    example = torch.randn(2, *inputs, generator=torch.Generator().manual_seed(0))
    if (kind := takes(module, torch.zeros(2, *inputs))) != "numbers":
        example = torch.zeros(2, *inputs, dtype=torch.float32 if kind == "mixed" else torch.int64)
    split = split_head(module, example) if len(learnt) < len(list(module.parameters())) else None
    head, prepare = (module, None) if split is None else split
    seen = example if prepare is None else prepare(example)
    particles = particle_model(head, likelihood, model.precision, seen, model.way, device)
    if prepare is not None:
        prepare = prepare.on(device)
    size = sum(value.numel() for value in module.parameters())
    return Network(particles, prepare, kept or None, start, now, size, knows, kind)
