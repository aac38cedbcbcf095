r"""Counts: the output is the logarithm of the rate, in units of a typical one.

.. math:: \lambda_t = \mathrm{rate}_t \, e^{o_t}

Above an output of 10, where the exponential has reached 22,026 typical counts, it goes on as a straight line with the
same slope: one large output in float32 would else make everything infinite.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedstein.errors import UserError
from fedstein.likelihoods.base import Likelihood, finite, own
from fedstein.likelihoods.values import Positive, as_table, check_targets, per_target
from fedstein.metrics import CENTRAL, PoissonMixture, Predicted, log_poisson, poisson_deviance, score_numbers

__all__ = ["Poisson"]

_STRAIGHT = 10.0  # the output above which the rate is a straight line
_MOST = 2**24  # whole numbers up to here are exact in float32


class Poisson(Likelihood):
    """Settings of the Poisson likelihood.

    >>> Poisson(rate=3.0).predict(torch.zeros(1, 1, 1)).interval(0.9)
    (tensor([[1.]], dtype=torch.float64), tensor([[6.]], dtype=torch.float64))
    """

    name: ClassVar[str] = "poisson"
    summary: ClassVar[str] = "counts, one or several; outputs are the logarithms of rates"
    headline: ClassVar[tuple[str, ...]] = ("rmse", "deviance", "nll", "coverage_90")
    lower: ClassVar[frozenset[str]] = frozenset(
        {"nll", "rmse", "mae", "crps", "deviance", "calibration_error", *(f"width_{percent}" for percent in CENTRAL)}
    )

    rate: Positive = Field(
        1.0, description="a typical count, a public constant: what an output of 0 means; one, or one for each target"
    )

    def outputs(self, targets: int) -> int:
        """One for each target."""
        check_targets(targets, rate=self.rate)
        return targets

    def targets(self, outputs: int) -> int:
        """As many."""
        return self.outputs(outputs)

    def check(self, y: Tensor, what: str, outputs: int) -> Tensor:
        """Whole numbers from 0, (n, targets) as float32; (n,) is one target.

        Args:
            y: what somebody gave.
            what: whose it is, for messages.
            outputs: how many targets the module speaks of.
        """
        table = as_table(y, what, self.targets(outputs))
        wrong = (table < 0) | (table != table.round())
        if wrong.any():
            raise UserError(f"{what}: y must be counts: whole numbers from 0. Got {float(table[wrong][0]):g} instead.")
        if (table > _MOST).any():
            raise UserError(
                f"{what}: counts must be at most {_MOST:,}, above which float32 rounds them. Got "
                f"{float(table.max()):,.0f} instead. Count in larger units, or use the likelihood 'gaussian'."
            )
        return table.float()

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """(B,) -log-probabilities.

        Args:
            outputs: (B, targets).
            y: (B, targets) counts as float32.
        """
        return -log_poisson(self._log_rates(outputs), y).sum(-1)

    def draw(self, outputs: Tensor, generator: torch.Generator) -> Tensor:
        """(B, targets) counts as float32.

        Args:
            outputs: (B, targets).
            generator: of the draws.
        """
        return torch.poisson(self._log_rates(outputs).exp().cpu(), generator=generator).to(outputs.device)

    def predict(self, outputs: Tensor) -> PoissonMixture:
        """The mixture over particles of outputs (N, B, targets)."""
        return PoissonMixture(self._log_rates(outputs.double().transpose(0, 1)))

    def scores(self, prediction: Predicted, y: Tensor, bins: int = 15) -> dict[str, Any]:
        """NLL, RMSE, deviance, CRPS, coverage of central intervals (by the randomised PIT); see `score_numbers`.

        Args:
            prediction: of B inputs.
            y: (B, targets) counts.
            bins: not used.
        """
        mixture = own(prediction, PoissonMixture)
        finite(mixture.log_rates)
        deviance = poisson_deviance(mixture.mean, y)
        scores = score_numbers(mixture, y) | {"deviance": float(deviance.mean())}
        return scores | ({"deviance_each": deviance.tolist()} if y.shape[1] > 1 else {})

    def ignorance(self, outputs: int) -> float:
        """The entropy of the geometric distribution with the mean `rate`: of all with that mean it has the largest."""
        like = torch.zeros(self.targets(outputs), dtype=torch.float64)
        rate = per_target(self.rate, like)
        return float(((1 + rate) * rate.log1p() - torch.special.xlogy(rate, rate) + like).sum())

    def _log_rates(self, outputs: Tensor) -> Tensor:
        bent = outputs.clamp_max(_STRAIGHT) + (outputs - _STRAIGHT).clamp_min(0.0).log1p()
        return bent + per_target(self.rate, outputs).log()
