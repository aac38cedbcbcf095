"""How far a model that was made to forget is from one that never knew: divergences and membership inference."""

from __future__ import annotations

import torch
from torch import Tensor

from fedstein.metrics.uncertainty import kl, ood_auroc

__all__ = ["js", "kl", "likelihood_ratio", "membership_auc", "true_positives", "true_probability"]


def js(p: Tensor, q: Tensor) -> Tensor:
    """(n,) Jensen-Shannon divergence, in nats: from 0 to log 2."""
    middle = (p.double() + q.double()) / 2
    return (kl(p, middle) + kl(q, middle)) / 2


def true_probability(probabilities: Tensor, labels: Tensor) -> Tensor:
    """(n,) probability of the true class."""
    return probabilities[torch.arange(len(labels), device=labels.device), labels].double()


def membership_auc(suspects: Tensor, unseen: Tensor) -> float:
    """Can suspects be told from unseen examples by a score (n,)? 0.5: no. Above: known; below: over-forgotten."""
    return ood_auroc(unseen, suspects)


def true_positives(suspects: Tensor, unseen: Tensor, false_positives: float = 0.01) -> float:
    """Share of the suspects that an attack finds at a given share of false alarms."""
    limit = torch.quantile(unseen.double(), 1.0 - false_positives)
    return float((suspects.double() > limit).double().mean())


def likelihood_ratio(score: Tensor, shadows: Tensor, inside: Tensor) -> Tensor:
    """The likelihood-ratio attack of Carlini et al. (2022), for each example alone.

    Args:
        score: (n,) log-odds of the true class under the model that is attacked.
        shadows: (m, n) the same under m shadow models.
        inside: (m, n) whether a shadow model was trained with the example.

    Returns:
        (n,) log p(score | trained with it) - log p(score | not), with normal distributions: a mean for each example,
        one variance for all (there are few shadow models).
    """
    log_likelihoods = []
    for here in (inside, ~inside):
        weight = here.double()
        count = weight.sum(0).clamp_min(1.0)
        mean = (shadows * weight).sum(0) / count
        spread = (((shadows - mean) ** 2 * weight).sum() / (weight.sum() - shadows.shape[1]).clamp_min(1.0)).sqrt()
        spread = spread.clamp_min(1e-6)
        log_likelihoods.append(-0.5 * ((score - mean) / spread) ** 2 - spread.log())
    return log_likelihoods[0] - log_likelihoods[1]
