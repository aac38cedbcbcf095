r"""Numbers with Gaussian noise, one or several for an example.

A module works on standard numbers: with outputs :math:`o` of target t,

.. math:: \mu_t = \mathrm{center}_t + \mathrm{scale}_t \, o_t,

and `center` and `scale` are public constants in the target's unit, about the mean and the standard deviation of the
targets. The noise has the fixed standard deviation `std`; or, with ``variance = "learnt"``, one that the module says
for each input, in as many further outputs :math:`r_t`, after all the means:

.. math:: \sigma_t = \mathrm{std}_t \big( f + (1 - f) \, \mathrm{softplus}(r_t + \log(e - 1)) \big).

So an output of 0 says `std`, large ones say proportionally more (softplus is no exponential: nothing overflows), and no
output says less than the share f = `least_std` of it: a density has no bound where the noise has none.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fedstein.errors import UserError
from fedstein.likelihoods.base import Likelihood, finite, own
from fedstein.likelihoods.values import Number, Positive, as_table, check_targets, per_target
from fedstein.metrics import CENTRAL, GaussianMixture, Predicted, score_numbers

__all__ = ["Gaussian"]

_AT_ZERO = math.log(math.e - 1)  # softplus of it is 1
_LOG_2PI = math.log(2 * math.pi)


class Gaussian(Likelihood):
    """Settings of the Gaussian likelihood.

    >>> Gaussian(center=20.0, scale=5.0).predict(torch.zeros(1, 1, 1)).mean
    tensor([[20.]], dtype=torch.float64)
    """

    name: ClassVar[str] = "gaussian"
    summary: ClassVar[str] = "numbers with Gaussian noise, of a fixed or a learnt size"
    headline: ClassVar[tuple[str, ...]] = ("rmse", "nll", "crps", "coverage_90")
    lower: ClassVar[frozenset[str]] = frozenset(
        {"nll", "rmse", "mae", "crps", "calibration_error", *(f"width_{percent}" for percent in CENTRAL)}
    )

    variance: Literal["fixed", "learnt"] = Field(
        "fixed", description="learnt: the module gives a second output for each target, the noise at that input"
    )
    std: Positive | None = Field(
        None,
        description="of the noise, in the target's unit; learnt: what an output of 0 means. The scale if left out. "
        "One number, or one for each target",
    )
    least_std: float = Field(1e-3, ge=1e-6, le=0.5, description="learnt noise is never below this share of std")
    center: Number = Field(0.0, description="of the targets, a public constant in their unit; one, or one for each")
    scale: Positive = Field(1.0, description="spread of the targets, a public constant in their unit; likewise")

    def outputs(self, targets: int) -> int:
        """One for each target, or two if the noise is learnt."""
        check_targets(targets, std=self.std, center=self.center, scale=self.scale)
        return 2 * targets if self.variance == "learnt" else targets

    def targets(self, outputs: int) -> int:
        """Half as many if the noise is learnt."""
        if self.variance == "learnt" and outputs % 2:
            raise UserError(
                f"A module whose noise is learnt must give two outputs for each target. Got {outputs} outputs."
            )
        targets = outputs // 2 if self.variance == "learnt" else outputs
        check_targets(targets, std=self.std, center=self.center, scale=self.scale)
        return targets

    def check(self, y: Tensor, what: str, outputs: int) -> Tensor:
        """Finite numbers (n, targets) of float32; (n,) is one target.

        Args:
            y: what somebody gave.
            what: whose it is, for messages.
            outputs: how many numbers the module gives for an example.
        """
        if y.dtype == torch.bool:
            raise UserError(f"{what}: y must be numbers. Got bool instead: the likelihood 'bernoulli' takes them.")
        return as_table(y, what, self.targets(outputs)).float()

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """(B,) -log-densities, in the target's unit.

        Args:
            outputs: (B, outputs).
            y: (B, targets) of float32.
        """
        mean, noise = self._standard(outputs)
        scale = per_target(self.scale, outputs)
        # in standard numbers: a center far from 0 would take the digits of a float32
        z = ((y - per_target(self.center, outputs)) / scale - mean) / noise
        return (0.5 * z.square() + (noise * scale).log() + 0.5 * _LOG_2PI).sum(-1)

    def draw(self, outputs: Tensor, generator: torch.Generator) -> Tensor:
        """(B, targets) numbers.

        Args:
            outputs: (B, outputs).
            generator: of the draws.
        """
        mean, noise = self._standard(outputs)
        drawn = mean + noise * torch.randn(mean.shape, generator=generator, dtype=mean.dtype).to(mean.device)
        return per_target(self.center, outputs) + per_target(self.scale, outputs) * drawn

    def predict(self, outputs: Tensor) -> GaussianMixture:
        """The mixture over particles of outputs (N, B, outputs), in float64 and in the target's unit."""
        mean, noise = self._standard(outputs.double().transpose(0, 1))
        scale = per_target(self.scale, mean)
        return GaussianMixture(per_target(self.center, mean) + scale * mean, scale * noise)

    def scores(self, prediction: Predicted, y: Tensor, bins: int = 15) -> dict[str, Any]:
        """RMSE, MAE, NLL, CRPS, coverage and width of central intervals, calibration; see `score_numbers`.

        Args:
            prediction: of B inputs.
            y: (B, targets).
            bins: not used.
        """
        mixture = own(prediction, GaussianMixture)
        finite(mixture.means, mixture.stds)
        return score_numbers(mixture, y)

    def ignorance(self, outputs: int) -> float:
        """The entropy of N(center, scale^2), or of the noise where that is larger."""
        targets = self.targets(outputs)
        like = torch.zeros(targets, dtype=torch.float64)
        scale = per_target(self.scale, like)
        widest = torch.maximum(scale, scale if self.std is None else per_target(self.std, like))
        return float((widest.log() + like).sum()) + 0.5 * targets * (1 + _LOG_2PI)

    def _standard(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Means and standard deviations (..., targets), in units of `scale` and from `center`."""
        targets = self.targets(outputs.shape[-1])
        scale = per_target(self.scale, outputs)
        noise = (scale if self.std is None else per_target(self.std, outputs)) / scale
        mean = outputs[..., :targets]
        if self.variance == "fixed":
            return mean, noise.expand_as(mean)
        share = functional.softplus(outputs[..., targets:] + _AT_ZERO)
        return mean, noise * (self.least_std + (1 - self.least_std) * share)
