"""The general path: any `torch.nn.Module` as N particles."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedstein.devices import with_number
from fedstein.errors import UserError
from fedstein.likelihoods import Categorical, Likelihood, OwnLoss
from fedstein.models.dense import Activation, DenseStack, Precision, takes_bf16
from fedstein.models.held import Held, Loss, device_of
from fedstein.models.refusals import Takes, check_module, fitting, notes_on, takes
from fedstein.models.ways import Loop, Vmap, Way, Ways, faster

__all__ = ["TorchModule", "cross_entropy", "particle_model"]


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The log-loss of a classifier's logits, for each example."""
    return functional.cross_entropy(outputs, targets, reduction="none")


def as_likelihood(loss: Loss | Likelihood) -> Likelihood:
    """A likelihood as it is, plain cross-entropy as the one that it is of, and any other loss as one's own."""
    if isinstance(loss, Likelihood):
        return loss
    return Categorical() if loss is cross_entropy else OwnLoss(loss=loss)


class TorchModule:
    """Any module whose batch norm, if it has any, is frozen; parameters in the order of `named_parameters()`.

    The module is used in evaluation mode (no dropout), and its own values are never changed. It takes one tensor, of
    whatever type that is, and returns one tensor (B, ...): itself, in a field `logits`, or as the only one of a tuple,
    list or dict. An instance is for one thread at a time.

    There are two ways to compute, of which sometimes one is faster by a factor of two and sometimes the other. They
    agree to about 1e-6 of a gradient's length, but not bit for bit. Who promises the same bits on every machine, or
    after a stop, must not measure again: measure once with "auto", write down `way`, and give that from then on.

    Args:
        module: maps (B, ...) inputs to (B, classes) logits, or to whatever `loss` takes.
        loss: a likelihood, or per-example losses; cross-entropy if left out.
        way: "vmap" for all particles at once by torch.func, "loop" for one after the other, which takes every module,
            or "auto" for the faster one, measured by `choose` or at the first gradient.
        precision: "bf16" for a forward pass under autocast to bfloat16, where the CPU has units for it; gradients are
            float32.
        device: to which our copy of the module is moved; that of the module's own parameters if None.

    Attributes:
        way: the one taken; "auto" before it is chosen. Until then losses and outputs go by the loop.
        notes: what a user should know of how the module is used, in sentences.

    >>> TorchModule(nn.GRU(3, 4), way="loop").dim
    108
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss | Likelihood = cross_entropy,
        *,
        way: Way | Literal["auto"] = "vmap",
        precision: Precision = "float32",
        device: torch.device | None = None,
    ) -> None:
        if way not in ("auto", "vmap", "loop"):
            raise UserError(f"The 'way' must be 'auto', 'vmap' or 'loop'. Got {way!r} instead.")
        device = device_of(module) if device is None else with_number(device)
        self.way = way
        self.device = device
        self._precision = precision
        self.likelihood = as_likelihood(loss)
        self._held = Held(module, self.likelihood.losses, takes_bf16(precision, device), device)
        self._vmap, self._loop = Vmap(self._held), Loop(self._held)
        self.dim = self._held.dim
        self.notes = notes_on(self._held.module)
        # Where particles start. (Particles that are put in have memory of their own: these stay as they are.)
        self._start = {name: p.detach().cpu() for name, p in self._held.parameters.items() if p.dim() < 2}

    def on(self, device: torch.device) -> TorchModule:
        """The same on another device; where particles start stays as it is."""
        if device == self.device:
            return self
        moved = TorchModule(self.module, self.likelihood, way=self.way, precision=self._precision, device=device)
        moved._start, moved.notes = self._start, self.notes
        return moved

    @property
    def module(self) -> nn.Module:
        """Our copy of the module, to copy again; what is learnt in it has the values of any particle."""
        return self._held.module

    @property
    def _ways(self) -> Ways:
        return self._vmap if self.way == "vmap" else self._loop

    def choose(self, x: Tensor, y: Tensor, particles: Tensor) -> Way:
        """The way to take from now on: the faster one on this work if it is "auto", else the one that was asked for.

        Args:
            x: a batch as large as they will be.
            y: its targets.
            particles: as many as there will be.
        """
        if self.way == "auto":
            self.way = faster(self._held, self._here(particles), self._here(x), self._here(y))
        return self.way

    def check(self, x: Tensor, y: Tensor) -> None:
        """Refuse, before training begins, a module or a loss that cannot be trained on such examples.

        Args:
            x: a few inputs.
            y: their targets.

        Raises:
            UserError: it does not run on them, returns something else than (B, ...) numbers of one shape, gives NaN at
                the start, draws at random or keeps state, or cannot be gone through in the way that was asked for.
        """
        particles = self._here(self.draw(2, torch.Generator().manual_seed(0)))
        x, y = self._here(x), self._here(y)
        unused = check_module(self._held, particles, x, y, classifies=isinstance(self.likelihood, Categorical))
        self.notes = notes_on(self._held.module, unused)
        if self.way == "vmap":
            try:
                self.loss_gradient(particles, x, y)
                self._vmap.outputs(particles, x)
            except UserError:
                raise
            except Exception as error:  # it fails in many ways
                raise UserError(
                    f"The 'module' cannot be gone through by torch.func: {error}. Give way='loop', or 'auto'."
                ) from error

    def takes(self, x: Tensor) -> Takes:
        """What the module takes, tried on some whole numbers."""
        return takes(self._held.module, self._here(x))

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Weights N(0, 1/(fan_in + 1)), biases 0; other vectors (scales of norms) as in the module; on the CPU."""
        pieces = []
        for name, value in self._held.parameters.items():
            if value.dim() >= 2:
                fan_in = prod(value.shape[1:])
                piece = torch.randn(count, value.numel(), generator=generator) / (fan_in + 1) ** 0.5
            elif name.rpartition(".")[2] == "bias":
                piece = torch.zeros(count, value.numel())
            else:
                piece = self._start[name].reshape(1, -1).repeat(count, 1)
            pieces.append(piece.to(value.dtype))
        return torch.cat(pieces, 1)

    def loss(self, particles: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """(N,) mean losses."""
        return self._ways.losses(particles, x, y)

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
        self.choose(x, y, particles)
        if weights is not None:
            fitting(weights, (len(particles), len(x)))
        return self._ways.gradient(particles, x, y, scale, out, weights)

    def outputs(self, particles: Tensor, x: Tensor) -> Tensor:
        """(N, B, ...)."""
        return self._ways.outputs(particles, x)

    def _here(self, value: Any) -> Any:
        """On the model's device; what is no tensor is for others to refuse."""
        return value.to(self.device) if isinstance(value, Tensor) else value


_ACTIVATIONS: dict[type[nn.Module], Activation] = {nn.ReLU: "relu", nn.Tanh: "tanh"}


def particle_model(
    module: nn.Module,
    loss: Loss | Likelihood = cross_entropy,
    precision: Precision = "float32",
    example: Tensor | None = None,
    way: Way | Literal["auto"] = "vmap",
    device: torch.device | None = None,
) -> DenseStack | TorchModule:
    """`module` as particles: by the fast path if it is a dense stack with a likelihood, else as a `TorchModule`.

    A dense stack is an `nn.Linear`, or an `nn.Sequential` of an optional `nn.Flatten` and `nn.Linear`
    layers with one and the same activation (ReLU or Tanh) between them. With `example` inputs (B, ...) it must also
    give the module's own outputs on them: hooks, tied layers and the like then take the general path.

    Args:
        module: of the user.
        loss: a likelihood, or per-example losses.
        precision: "bf16" for bfloat16 products.
        example: some inputs.
        way: of the general path, see `TorchModule`.
        device: where it computes; where the module's own parameters are if None.

    >>> type(particle_model(nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)))).__name__
    'DenseStack'
    >>> type(particle_model(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3)))).__name__
    'TorchModule'
    """
    likelihood = as_likelihood(loss)
    device = device_of(module) if device is None else with_number(device)
    dense = _dense_stack(module, precision, example, likelihood, device) if likelihood.predicts else None
    if dense is not None:
        return dense
    return TorchModule(module, likelihood, way=way, precision=precision, device=device)


def _dense_stack(
    module: nn.Module, precision: Precision, example: Tensor | None, likelihood: Likelihood, device: torch.device
) -> DenseStack | None:
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
    stack = DenseStack(sizes, _ACTIVATIONS[between.pop()] if between else "relu", precision, likelihood, device)
    own = nn.utils.parameters_to_vector(module.parameters()).detach()
    if len(own) != stack.dim:  # layers that share parameters
        return None
    if example is not None:
        try:
            with torch.no_grad():
                outputs: Tensor = module(example)
        except (RuntimeError, TypeError, ValueError, IndexError):
            return None  # the general path says why
        exact = DenseStack(stack.sizes, stack.activation).outputs(own[None], example)[0]
        if outputs.shape != exact.shape or not torch.allclose(outputs, exact, rtol=1e-3, atol=1e-4):
            return None
    return stack
