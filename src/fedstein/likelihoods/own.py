"""A loss of one's own: particles can be trained with it, and nothing can be predicted from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

import torch
from pydantic import ConfigDict, Field
from torch import Tensor

from fedstein.errors import UserError
from fedstein.likelihoods.base import Likelihood
from fedstein.metrics import Predicted

__all__ = ["OwnLoss"]


class OwnLoss(Likelihood):
    """A function of outputs (B, ...) and targets, with (B,) losses. It stands in no registry and in no config.

    >>> loss = OwnLoss(lambda outputs, y: (outputs[:, 0] - y).abs())
    >>> loss.losses(torch.zeros(2, 1), torch.tensor([1.0, 3.0]))
    tensor([1., 3.])
    >>> loss.predict(torch.zeros(1, 2, 1))
    Traceback (most recent call last):
    fedstein.errors.UserError: A loss of one's own says nothing of probabilities, which predictions need...
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)
    name: ClassVar[str] = "own"
    summary: ClassVar[str] = "a loss of one's own, without predictions"
    headline: ClassVar[tuple[str, ...]] = ()
    predicts: ClassVar[bool] = False
    positional: ClassVar[tuple[str, ...]] = ("loss",)

    loss: Callable[[Tensor, Tensor], Tensor] = Field(exclude=True, description="(outputs, targets) -> (B,) losses")

    def check(self, y: Tensor, what: str, outputs: int) -> Tensor:
        """The targets as they are; only NaN and infinity are refused.

        Args:
            y: what somebody gave.
            what: whose it is, for messages.
            outputs: not used.
        """
        if y.is_floating_point() and not torch.isfinite(y).all():
            raise UserError(f"{what}: y has NaN or infinity. Clean or impute it first.")
        return y

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """What the function gives.

        Args:
            outputs: of one module, (B, ...).
            y: targets.
        """
        return self.loss(outputs, y)

    def draw(self, outputs: Tensor, generator: torch.Generator) -> NoReturn:
        """Not possible."""
        raise _needs_a_likelihood("draws")

    def predict(self, outputs: Tensor) -> NoReturn:
        """Not possible."""
        raise _needs_a_likelihood("predictions")

    def log_density(self, prediction: Predicted, y: Tensor) -> NoReturn:
        """Not possible."""
        raise _needs_a_likelihood("densities")

    def scores(self, prediction: Predicted, y: Tensor, bins: int = 15) -> dict[str, Any]:
        """Not possible."""
        raise _needs_a_likelihood("metrics")

    def ignorance(self, outputs: int) -> NoReturn:
        """Not known."""
        raise _needs_a_likelihood("guesses")


def _needs_a_likelihood(what: str) -> UserError:
    return UserError(
        f"A loss of one's own says nothing of probabilities, which {what} need. Use a likelihood instead: "
        "'fedstein components' lists them, docs/extending.md says how to write one."
    )
