"""Particles as whole networks: plain modules with everybody's names, the frozen part and buffers included."""

from __future__ import annotations

import copy
from itertools import pairwise

import torch
from torch import Tensor, nn

from fedstein.devices import CPU
from fedstein.errors import UserError
from fedstein.models import FEATURES, Activation
from fedstein.models.named import make_module
from fedstein.runs.evaluation import Loaded
from fedstein.runs.given import Given

__all__ = ["values_of", "whole_network", "with_particle"]

_ACTIVATIONS: dict[Activation, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}


def whole_network(loaded: Loaded, given: Given | None = None) -> nn.Module:
    """The network of a run in evaluation mode: what is frozen has its values, and only what is learnt has gradients.

    Args:
        loaded: the run.
        given: what it was given in Python, if it was.
    """
    config, problem = loaded.config, loaded.problem
    if problem.inputs is None:
        raise UserError("Cannot export: this is a problem with a known posterior, and has no network.")
    if given is not None:
        return copy.deepcopy(given.whole()).to(CPU).eval()
    frozen = None if problem.network is None else problem.network.frozen
    if config.model.module is not None:
        made = make_module(config.model.module, config.model.args, config.seed, config.model.particles, frozen)
        return made.to(CPU)
    sizes = [problem.inputs.shape.numel(), *config.model.hidden, problem.inputs.outputs]
    network = _dense(sizes, config.model.activation)
    if frozen is not None:
        _put(list(network.parameters()), frozen[FEATURES])
        network[:-1].requires_grad_(False)
    return network.eval()


def with_particle(network: nn.Module, particle: Tensor) -> nn.Module:
    """A copy with the values of one particle; what is frozen is shared by all copies, and not copied.

    Args:
        network: with gradients where something is learnt.
        particle: (dim,) in the order of `named_parameters()`.
    """
    fixed = [p for p in network.parameters() if not p.requires_grad] + list(network.buffers())
    made = copy.deepcopy(network, {id(value): value for value in fixed})
    _put([p for p in made.parameters() if p.requires_grad], particle)
    return made.requires_grad_(False)


def values_of(network: nn.Module) -> dict[str, Tensor]:
    """The state_dict, each tensor with memory of its own: the file format has no names for shared ones."""
    values = network.state_dict()
    if other := [name for name, value in values.items() if not isinstance(value, Tensor)]:
        raise UserError(
            f"Cannot export: the state_dict of the 'module' must have tensors only, and '{other[0]}' is a "
            f"{type(values[other[0]]).__name__}. Keep it as a buffer, or make it again in the module's __init__."
        )
    return {name: value.detach().clone() for name, value in values.items()}


def _dense(sizes: list[int], activation: Activation) -> nn.Sequential:
    """The stack of `model.hidden` as anybody would write it."""
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs, device="meta"), _ACTIVATIONS[activation]()]  # no random number is drawn
    return nn.Sequential(*layers[:-1]).to_empty(device="cpu")


def _put(parameters: list[nn.Parameter], flat: Tensor) -> None:
    if len(flat) != sum(p.numel() for p in parameters):
        raise UserError(f"The network has {sum(p.numel() for p in parameters):,} values to fill. Got {len(flat):,}.")
    with torch.no_grad():
        for parameter, piece in zip(parameters, torch.split(flat, [p.numel() for p in parameters]), strict=True):
            parameter.copy_(piece.view(parameter.shape))
