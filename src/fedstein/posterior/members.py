"""The members: the whole parameter vectors whose mixture predicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from fedstein.posterior.turns import Turns
from fedstein.registry import Registry
from fedstein.streams import stream

if TYPE_CHECKING:
    from fedstein.posterior.settings import Posterior

__all__ = ["POSTERIORS", "Maker", "members"]


class Maker(Protocol):
    """Makes members of a window."""

    def __call__(self, last: Tensor, means: Tensor, settings: Posterior, generator: torch.Generator) -> Tensor:
        """The members (M, d).

        Args:
            last: the particles (N_p, d) after the last round.
            means: the window (S, N_p, d), the oldest first; S is at least 1.
            settings: the section `posterior`.
            generator: of random draws; the same for the same run and round.
        """
        ...


def _last(last: Tensor, means: Tensor, settings: Posterior, generator: torch.Generator) -> Tensor:
    return last


def _window(last: Tensor, means: Tensor, settings: Posterior, generator: torch.Generator) -> Tensor:
    """The turn means of each chain, `posterior.scale` times as far from their middle, which they are too near to."""
    middle = means.mean(0)
    return (middle + settings.widening(means.shape[1]) * (means - middle)).flatten(0, 1)


def _mean(last: Tensor, means: Tensor, settings: Posterior, generator: torch.Generator) -> Tensor:
    return means.mean(0)


def _gaussian(last: Tensor, means: Tensor, settings: Posterior, generator: torch.Generator) -> Tensor:
    r"""Draws of the Gaussian of SWAG (Maddox et al., 2019): half a diagonal, half the span of the window.

    .. math:: \bar\theta + \sigma \Big(\tfrac{1}{\sqrt 2} s \odot z_1 + \tfrac{1}{\sqrt{2 (S - 1)}} D z_2\Big)

    with D the deviations from the mean, s^2 their mean square, and sigma = `posterior.scale`.
    """
    count, middle, scale = len(means), means.mean(0), settings.widening(means.shape[1])
    if count == 1:
        return middle
    deviations = means - middle
    spread = (deviations.square().sum(0) / (2 * (count - 1))).sqrt()
    drawn = []
    for _ in range(settings.draws):
        along = torch.randn(count, 1, 1, generator=generator) / (2 * (count - 1)) ** 0.5
        apart = spread * torch.randn(middle.shape, generator=generator)
        drawn.append(middle + scale * (apart + (along * deviations).sum(0)))
    return torch.cat(drawn)


POSTERIORS: Registry[Maker] = Registry(
    "posterior",
    "what predicts, made of the way of the chains (posterior.from)",
    {"window": _window, "mean": _mean, "gaussian": _gaussian, "last": _last},
)


def members(settings: Posterior, last: Tensor, turns: Turns, round: int, seed: int) -> Tensor:
    """The members (M, d) after a round; the particles themselves before the first turn is whole.

    Args:
        settings: the section `posterior`.
        last: the particles (N_p, d).
        turns: the newest turns.
        round: how many are done.
        seed: of the run.
    """
    window = turns.window(settings.length(len(last)))
    if not window:
        return last
    means = torch.stack([turn.mean() for turn in window])
    return POSTERIORS[settings.from_](last, means, settings, stream(seed, "posterior", round=round))
