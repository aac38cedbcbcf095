"""The fast path: a stack of dense layers, all particles in one product.

Activations are kept as (N, features, B). The first layer of all N particles is then one matrix product
with the batch, which they share, and so is its gradient; deeper layers are batched products. Nothing is
recorded for autograd: the backward pass is written out, but for what a likelihood other than the softmax does with the
outputs.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from fedstein.devices import CPU, with_number
from fedstein.errors import UserError
from fedstein.likelihoods import Categorical, Likelihood
from fedstein.models.refusals import fitting

__all__ = ["Activation", "DenseStack", "Precision", "has_bf16_units", "takes_bf16"]

Activation = Literal["relu", "tanh"]
Precision = Literal["float32", "bf16"]

_WIDE = 256  # batch from which one product for all particles beats one for each: below, gathering weights costs more
_threshold_backward = torch.ops.aten.threshold_backward


def has_bf16_units(device: torch.device = CPU) -> bool:
    """Whether a device multiplies bfloat16 matrices in hardware; of a CPU, by AMX or AVX-512 BF16."""
    if device.type == "cpu":
        names = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
        return any(bool(getattr(torch.cpu, name, bool)()) for name in names)
    supported = getattr(torch.get_device_module(device), "is_bf16_supported", None)
    return supported is not None and bool(supported())


def takes_bf16(precision: Precision, device: torch.device) -> bool:
    """Whether products are to be of bfloat16; where they cannot be, a warning says so."""
    if precision != "bf16":
        return False
    units = has_bf16_units(device)
    if not units:
        what = "This CPU" if device.type == "cpu" else f"The device {device}"
        warnings.warn(f"{what} has no bf16 matrix units: products stay float32.", stacklevel=3)
    return units


class DenseStack:
    """Dense layers of the given sizes: an MLP, or a linear model with no hidden layer.

    The flat layout is that of ``nn.Sequential(nn.Linear(...), activation, nn.Linear(...), ...)``.

    Args:
        sizes: inputs, hidden layers, outputs; at least two numbers.
        activation: between the layers.
        precision: "bf16" rounds the operands of the wide products to bfloat16, where the CPU has units for
            them. Elsewhere that would be much slower, so they stay float32, with a warning.
        likelihood: of the targets, given the outputs.
        device: on which its callers put particles and inputs; it has no tensors of its own.

    >>> DenseStack([784, 100, 10]).dim
    79510
    """

    def __init__(
        self,
        sizes: Sequence[int],
        activation: Activation = "relu",
        precision: Precision = "float32",
        likelihood: Likelihood = Categorical(),  # noqa: B008  (frozen)
        device: torch.device = CPU,
    ) -> None:
        if len(sizes) < 2 or min(sizes) < 1:
            raise UserError(f"The 'sizes' of DenseStack must be two or more numbers >= 1. Got {list(sizes)} instead.")
        self.sizes = tuple(sizes)
        self.activation = activation
        self.likelihood = likelihood
        # The softmax of plain cross-entropy is written out; whatever else there may be goes by its losses.
        self._softmax = isinstance(likelihood, Categorical) and likelihood.class_weights is None
        self.device = with_number(device)
        self._precision = precision
        self._bf16 = takes_bf16(precision, device)
        self._slices: list[tuple[int, int, int]] = []  # start of the weight, of the bias, end
        start = 0
        for inputs, outputs in pairwise(self.sizes):
            bias = start + inputs * outputs
            self._slices.append((start, bias, bias + outputs))
            start = bias + outputs
        self.dim = start
        self._scratch: dict[tuple[int, int], Tensor] = {}

    def on(self, device: torch.device) -> DenseStack:
        """The same on another device."""
        same = with_number(device) == self.device
        return self if same else DenseStack(self.sizes, self.activation, self._precision, self.likelihood, device)

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Weights N(0, 1/(fan_in + 1)), biases 0; on the CPU."""
        particles = torch.zeros(count, self.dim)
        for inputs, (start, bias, _) in zip(self.sizes[:-1], self._slices, strict=True):
            weights = torch.randn(count, bias - start, generator=generator)
            particles[:, start:bias] = weights / (inputs + 1) ** 0.5
        return particles

    def loss(self, particles: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """(N,) mean losses."""
        logits = self._forward(particles, x.reshape(len(x), -1))[-1]
        if not self._softmax:
            return self._losses(logits.transpose(1, 2), y).mean(1)
        wanted = y.expand(len(particles), 1, -1)
        return (logits.logsumexp(1) - logits.gather(1, wanted)[:, 0]).mean(1)

    def outputs(self, particles: Tensor, x: Tensor) -> Tensor:
        """(N, B, outputs)."""
        return self._forward(particles, x.reshape(len(x), -1))[-1].transpose(1, 2)

    def features(self, particle: Tensor, x: Tensor) -> Tensor:
        """(B, width) activations before the last layer, of one particle (dim,)."""
        return self._forward(particle[None], x.reshape(len(x), -1))[-2][0].T.contiguous()

    def loss_gradient(
        self,
        particles: Tensor,
        x: Tensor,
        y: Tensor,
        scale: float = 1.0,
        out: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """(N, dim): `scale` times the gradients of the mean loss, or of losses weighted by (N, B)."""
        x = x.reshape(len(x), -1)
        n, batch = len(particles), len(x)
        gradient = torch.empty_like(particles) if out is None else out
        activations = self._forward(particles, x)
        outputs = activations.pop()
        if self._softmax:  # d loss / d logits = (softmax - one-hot) / B, times scale
            delta = outputs.softmax(1)
            delta.scatter_add_(1, y.expand(n, 1, -1), delta.new_full((n, 1, 1), -1.0).expand(n, 1, batch))
        else:
            delta = self._slope(outputs.transpose(1, 2), y).transpose(1, 2).contiguous()
        delta.mul_(scale / batch)
        if weights is not None:
            delta.mul_(fitting(weights, (n, batch))[:, None])
        for layer in reversed(range(len(self._slices))):
            below_width, width = self.sizes[layer], self.sizes[layer + 1]
            start, bias, end = self._slices[layer]
            torch.sum(delta, 2, out=gradient[:, bias:end])
            if layer == 0:
                product = self._first_gradient(delta.reshape(n * width, batch), x)
                gradient[:, start:bias] = product.view(n, -1)
                break
            below = activations.pop()
            gradient[:, start:bias] = torch.bmm(delta, below.transpose(1, 2)).view(n, -1)
            weights = particles[:, start:bias].view(n, width, below_width)
            delta = torch.bmm(weights.transpose(1, 2), delta)
            delta = (
                _threshold_backward(delta, below, 0.0)
                if self.activation == "relu"
                else delta.mul_(1.0 - below.square())
            )
        return gradient

    def _losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """(N, B) losses of outputs (N, B, outputs)."""
        n, batch, _ = outputs.shape
        every = y.repeat(n, *[1] * (y.dim() - 1))
        return self.likelihood.losses(outputs.reshape(n * batch, -1), every).reshape(n, batch)

    def _slope(self, outputs: Tensor, y: Tensor) -> Tensor:
        """(N, B, outputs): the derivatives of each loss by its outputs."""
        with torch.enable_grad():
            outputs = outputs.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self._losses(outputs, y).sum(), outputs)
        return slope

    def _forward(self, particles: Tensor, x: Tensor) -> list[Tensor]:
        """Activations (N, width, B) of the hidden layers, then the logits."""
        n, activations = len(particles), []
        below = x.T.expand(n, -1, -1)
        for layer, (start, bias, end) in enumerate(self._slices):
            inputs, outputs = self.sizes[layer], self.sizes[layer + 1]
            weights = particles[:, start:bias]
            if layer == 0 and (len(x) >= _WIDE or self._bf16):
                out = self._wide(weights.reshape(n * outputs, inputs), x.T).view(n, outputs, len(x))
                out += particles[:, bias:end, None]
            else:
                out = torch.baddbmm(particles[:, bias:end, None], weights.view(n, outputs, inputs), below)
            if layer < len(self._slices) - 1:
                out = out.relu_() if self.activation == "relu" else out.tanh_()
            activations.append(out)
            below = out
        return activations

    def _first_gradient(self, delta: Tensor, x: Tensor) -> Tensor:
        if self._bf16:
            return self._wide(delta, x)
        # A kept buffer: a fresh one this large costs as much in page faults as the product itself.
        key = (len(delta), x.shape[1])
        if key not in self._scratch or self._scratch[key].device != delta.device:
            self._scratch = {key: delta.new_empty(key)}
        return torch.mm(delta, x, out=self._scratch[key])

    def _wide(self, a: Tensor, b: Tensor) -> Tensor:
        if self._bf16:
            return (a.bfloat16() @ b.bfloat16()).float()
        return a @ b
