"""Two ways to go through a module with N particles: all at once by torch.func, or one after the other by autograd.

Both give the same up to rounding (about 1e-6 of a gradient's length), but not the same bits.
"""

from __future__ import annotations

import warnings
from functools import partial
from statistics import median
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from fedstein.devices import clock
from fedstein.errors import UserError
from fedstein.models.held import Held

__all__ = ["Loop", "Vmap", "Way", "Ways", "faster"]

Way = Literal["vmap", "loop"]
_REPETITIONS = 3  # at least, unless they take more than _MOST
_ENOUGH, _MOST = 0.2, 2.0  # seconds
_WORTH = 0.9  # of the loop's time: below it vmap is taken, which needs N times the memory
_AGREE, _AGREE_BF16 = 1e-3, 5e-2  # of the gradient's length; they are far nearer unless vmap computes something else


class Ways(Protocol):
    """One way of computation."""

    def gradient(
        self, particles: Tensor, x: Tensor, y: Tensor, scale: float, out: Tensor | None, weights: Tensor | None = None
    ) -> Tensor:
        """(N, dim): `scale` times the gradients of the mean loss, or of losses weighted by (N, B).

        Written into `out` if given.
        """
        ...

    def losses(self, particles: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """(N,) mean losses."""
        ...

    def outputs(self, particles: Tensor, x: Tensor) -> Tensor:
        """(N, B, ...) of the module."""
        ...


class Vmap:
    """All particles at once. Not every module can be gone through this way: no GRU, no `.item()`, little in place."""

    def __init__(self, held: Held) -> None:
        self._held = held

    def gradient(
        self, particles: Tensor, x: Tensor, y: Tensor, scale: float, out: Tensor | None, weights: Tensor | None = None
    ) -> Tensor:
        """(N, dim)."""
        gradient: Tensor
        if weights is None:
            gradient = vmap(grad(self._mean_loss), in_dims=(0, None, None))(particles, x, y)
        else:
            gradient = vmap(grad(self._weighted_loss), in_dims=(0, None, None, 0))(particles, x, y, weights)
        return torch.mul(gradient, scale, out=out)

    def losses(self, particles: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """(N,)."""
        with torch.no_grad():
            return vmap(self._mean_loss, in_dims=(0, None, None))(particles, x, y)

    def outputs(self, particles: Tensor, x: Tensor) -> Tensor:
        """(N, B, ...)."""
        with torch.no_grad():
            return vmap(self._call, in_dims=(0, None))(particles, x)

    def _mean_loss(self, particle: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self._held.loss(self._call(particle, x), y).mean()

    def _weighted_loss(self, particle: Tensor, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        return _weighted(self._held.loss(self._call(particle, x), y), weights).mean()

    def _call(self, particle: Tensor, x: Tensor) -> Tensor:
        held = self._held
        pieces = torch.split(particle, held.sizes)
        named = zip(pieces, held.parameters.items(), strict=True)
        parameters = {name: piece.view(value.shape) for piece, (name, value) in named}
        return held.outputs(partial(functional_call, held.module, parameters), x)


class Loop:
    """One particle after the other: whatever autograd can go through."""

    def __init__(self, held: Held) -> None:
        self._held = held

    def gradient(
        self, particles: Tensor, x: Tensor, y: Tensor, scale: float, out: Tensor | None, weights: Tensor | None = None
    ) -> Tensor:
        """(N, dim)."""
        held = self._held
        gradient = torch.empty_like(particles) if out is None else out
        with torch.enable_grad():
            for place, (particle, row) in enumerate(zip(particles, gradient, strict=True)):
                self._held.put_in(particle)
                losses = held.loss(held.outputs(held.module, x), y)
                loss = losses.mean() if weights is None else _weighted(losses, weights[place]).mean()
                if loss.requires_grad:
                    # Not autograd.grad: modules that save memory by checkpoints know backward only.
                    loss.backward(torch.full_like(loss, scale))  # type: ignore[no-untyped-call]
                by_name = held.take_gradients()
                named = held.parameters.items()
                pieces = [by_name[name] if name in by_name else torch.zeros_like(p) for name, p in named]
                torch.cat([piece.reshape(-1) for piece in pieces], out=row)
        return gradient

    def losses(self, particles: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """(N,)."""
        return torch.stack([self._held.loss(outputs, y).mean() for outputs in self._each(particles, x)])

    def outputs(self, particles: Tensor, x: Tensor) -> Tensor:
        """(N, B, ...)."""
        return torch.stack(self._each(particles, x))

    def _each(self, particles: Tensor, x: Tensor) -> list[Tensor]:
        outputs = []
        with torch.no_grad():
            for particle in particles:
                self._held.put_in(particle)
                outputs.append(self._held.outputs(self._held.module, x))
        return outputs


def _weighted(losses: Tensor, weights: Tensor) -> Tensor:
    if losses.shape != weights.shape:
        raise UserError(
            f"The 'loss' must give one loss for each example, so that they can be weighted: {tuple(weights.shape)}. "
            f"Got {tuple(losses.shape)} instead."
        )
    return losses * weights


def faster(held: Held, particles: Tensor, x: Tensor, y: Tensor) -> Way:
    """The way that takes less time for a gradient here and now; `loop` where vmap fails or gives something else.

    Args:
        held: the module.
        particles: as many as there will be.
        x: a batch as large as they will be.
        y: its targets.
    """
    ways: dict[Way, Ways] = {"vmap": Vmap(held), "loop": Loop(held)}
    expected = ways["loop"].gradient(particles, x, y, 1.0, None)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", ".*performance drop")  # it falls back to a loop of its own, and says so
            batched = ways["vmap"].gradient(particles, x, y, 1.0, None)
            ways["vmap"].outputs(particles, x)
    except Exception:  # it fails in many ways; what is wrong with the module itself, the loop has said
        return "loop"
    if not (batched - expected).norm() <= (_AGREE_BF16 if held.bf16 else _AGREE) * expected.norm():
        return "loop"
    seconds: dict[Way, list[float]] = {"vmap": [], "loop": []}
    spent, out = 0.0, torch.empty_like(particles)
    while spent < _MOST and (spent < _ENOUGH or len(seconds["loop"]) < _REPETITIONS):
        for way, path in ways.items():
            began = clock(held.device)
            path.gradient(particles, x, y, 1.0, out)
            seconds[way].append(clock(held.device) - began)
            spent += seconds[way][-1]
    return "vmap" if median(seconds["vmap"]) < _WORTH * median(seconds["loop"]) else "loop"
