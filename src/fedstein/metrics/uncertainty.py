r"""Predictions of a set of particles, and how uncertain they are.

The prediction is the mixture :math:`\bar p = \frac1N \sum_n p_n`. Its entropy splits into an aleatoric part
(the mean entropy of the particles) and an epistemic part (their disagreement, the mutual information):

.. math:: H(\bar p) = \frac1N \sum_n H(p_n) + I.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Prediction", "mix", "ood_auroc"]


@dataclass(frozen=True)
class Prediction:
    """For each of n inputs; entropies in nats."""

    probabilities: Tensor  # (n, classes), the mixture over particles
    aleatoric: Tensor  # (n,)
    epistemic: Tensor  # (n,)

    @property
    def label(self) -> Tensor:
        """(n,) most probable classes."""
        return self.probabilities.argmax(1)

    @property
    def confidence(self) -> Tensor:
        """(n,) probability of the most probable class."""
        return self.probabilities.amax(1)

    @property
    def entropy(self) -> Tensor:
        """(n,) total predictive entropy."""
        return self.aleatoric + self.epistemic


def mix(log_probabilities: Tensor) -> Prediction:
    """The mixture of (N, n, classes) log-probabilities over the N particles."""
    each = log_probabilities.exp()
    mean = each.mean(0)
    aleatoric = -(each * log_probabilities.clamp_min(-1e4)).sum(2).mean(0)
    total = -torch.special.xlogy(mean, mean).sum(1)
    return Prediction(mean, aleatoric, (total - aleatoric).clamp_min_(0.0))


def ood_auroc(inside: Tensor, outside: Tensor) -> float:
    """Probability that a random outside input gets a larger score (n,) than a random inside one."""
    from sklearn.metrics import roc_auc_score

    truth = torch.cat([torch.zeros(len(inside)), torch.ones(len(outside))])
    return float(roc_auc_score(truth.numpy(), torch.cat([inside, outside]).numpy()))
