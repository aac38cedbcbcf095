"""The general path: any `torch.nn.Module` as N particles, by torch.func."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from fedstein.errors import UserError
from fedstein.models.dense import Activation, DenseStack, Precision

__all__ = ["Loss", "TorchModule", "cross_entropy", "particle_model"]

Loss = Callable[[Tensor, Tensor], Tensor]
"""(outputs of the module (B, ...), targets) -> (B,) losses."""


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The log-loss of a classifier's logits, for each example."""
    return functional.cross_entropy(outputs, targets, reduction="none")


class TorchModule:
    """Any module without batch statistics; parameters in the order of `named_parameters()`.

    The module is used in evaluation mode (no dropout), and its own values are never changed.

    Args:
        module: maps (B, ...) inputs to (B, classes) logits, or to whatever `loss` takes.
        loss: per-example losses; cross-entropy if left out.
    """

    def __init__(self, module: nn.Module, loss: Loss = cross_entropy) -> None:
        for name, part in module.named_modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm):
                raise UserError(
                    f"The 'module' must not keep batch statistics: '{name}' is a {type(part).__name__}. "
                    "Use GroupNorm or LayerNorm: a particle is a parameter vector and nothing else."
                )
        self._parameters = {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}
        if not self._parameters:
            raise UserError("The 'module' must have parameters that require a gradient. It has none.")
        self._fixed = {name: p.detach() for name, p in module.named_parameters() if not p.requires_grad}
        self._fixed |= {name: b.detach() for name, b in module.named_buffers()}
        self._module = copy.deepcopy(module).eval()  # a copy: the user's own keeps its mode
        self._sizes = [p.numel() for p in self._parameters.values()]
        self.dim = sum(self._sizes)

        def mean_loss(particle: Tensor, x: Tensor, y: Tensor) -> Tensor:
            return loss(self._call(particle, x), y).mean()

        self._loss = vmap(mean_loss, in_dims=(0, None, None))
        self._gradient = vmap(grad(mean_loss), in_dims=(0, None, None))
        self._outputs = vmap(self._call, in_dims=(0, None))

    def _call(self, particle: Tensor, x: Tensor) -> Tensor:
        pieces = torch.split(particle, self._sizes)
        parameters = {
            name: piece.view(value.shape) for piece, (name, value) in zip(pieces, self._parameters.items(), strict=True)
        }
        output: Tensor = functional_call(self._module, parameters | self._fixed, (x,))
        return output

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Weights N(0, 1/(fan_in + 1)), biases 0; other vectors (scales of norms) as in the module."""
        pieces = []
        for name, value in self._parameters.items():
            if value.dim() >= 2:
                fan_in = prod(value.shape[1:])
                piece = torch.randn(count, value.numel(), generator=generator) / (fan_in + 1) ** 0.5
            elif name.rpartition(".")[2] == "bias":
                piece = torch.zeros(count, value.numel())
            else:
                piece = value.reshape(1, -1).repeat(count, 1)
            pieces.append(piece.to(value.dtype))
        return torch.cat(pieces, 1)

    def loss(self, particles: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """(N,) mean losses."""
        with torch.no_grad():
            return self._loss(particles, x, y)

    def loss_gradient(
        self, particles: Tensor, x: Tensor, y: Tensor, scale: float = 1.0, out: Tensor | None = None
    ) -> Tensor:
        """(N, dim): `scale` times the gradients of the mean loss."""
        gradient: Tensor = self._gradient(particles, x, y)
        return torch.mul(gradient, scale, out=out)

    def log_probabilities(self, particles: Tensor, x: Tensor) -> Tensor:
        """(N, B, classes)."""
        with torch.no_grad():
            outputs: Tensor = self._outputs(particles, x)
        return outputs.log_softmax(2)


_ACTIVATIONS: dict[type[nn.Module], Activation] = {nn.ReLU: "relu", nn.Tanh: "tanh"}


def particle_model(
    module: nn.Module, loss: Loss = cross_entropy, precision: Precision = "float32", example: Tensor | None = None
) -> DenseStack | TorchModule:
    """`module` as particles: by the fast path if it is a dense stack with cross-entropy, else by torch.func.

    A dense stack is an `nn.Linear`, or an `nn.Sequential` of an optional `nn.Flatten` and `nn.Linear`
    layers with one and the same activation (ReLU or Tanh) between them. With `example` inputs (B, ...) it must also
    give the module's own outputs on them: hooks, tied layers and the like then take the general path.

    >>> type(particle_model(nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)))).__name__
    'DenseStack'
    >>> type(particle_model(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3)))).__name__
    'TorchModule'
    """
    dense = _dense_stack(module, precision, example) if loss is cross_entropy else None
    if dense is not None:
        return dense
    if precision != "float32":
        raise UserError(
            f"The 'precision' {precision!r} needs a dense stack (see particle_model). Use 'float32' with this module."
        )
    return TorchModule(module, loss)


def _dense_stack(module: nn.Module, precision: Precision, example: Tensor | None) -> DenseStack | None:
    layers: list[Any] = list(module) if type(module) is nn.Sequential else [module]
    if layers and type(layers[0]) is nn.Flatten:
        layers = layers[1:]
    linear, between = layers[::2], {type(part) for part in layers[1::2]}
    plain = (
        len(layers) % 2 == 1
        and len(between) <= 1
        and between <= set(_ACTIVATIONS)
        and all(type(part) is nn.Linear and part.bias is not None for part in linear)
        and all(below.out_features == above.in_features for below, above in pairwise(linear))
        and all(p.requires_grad and p.dtype == torch.float32 for p in module.parameters())
    )
    if not plain:
        return None
    sizes = [linear[0].in_features, *(part.out_features for part in linear)]
    stack = DenseStack(sizes, _ACTIVATIONS[between.pop()] if between else "relu", precision)
    own = nn.utils.parameters_to_vector(module.parameters()).detach()
    if len(own) != stack.dim:  # layers that share parameters
        return None
    if example is not None:
        try:
            with torch.no_grad():
                outputs: Tensor = module(example).log_softmax(-1)
        except (RuntimeError, TypeError, ValueError, IndexError):
            return None  # the general path says why
        exact = DenseStack(stack.sizes, stack.activation).log_probabilities(own[None], example)[0]
        if outputs.shape != exact.shape or not torch.allclose(outputs, exact, rtol=1e-3, atol=1e-4):
            return None
    return stack
