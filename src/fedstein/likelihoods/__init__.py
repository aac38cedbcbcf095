"""Likelihoods, one file each: what a module's outputs say of a target, as a loss and as a prediction.

A new one: copy the nearest file, add one line to `LIKELIHOODS`, write its test (`fedstein.testing.check_likelihood`).
"""

from collections.abc import Mapping
from typing import Any

from fedstein.likelihoods.base import Likelihood
from fedstein.likelihoods.bernoulli import Bernoulli
from fedstein.likelihoods.categorical import Categorical, score_predictions
from fedstein.likelihoods.gaussian import Gaussian
from fedstein.likelihoods.own import OwnLoss
from fedstein.likelihoods.poisson import Poisson
from fedstein.registry import Registry

LIKELIHOODS: Registry[type[Likelihood]] = Registry(
    "likelihood",
    "what a module's outputs say of a target (likelihood.name)",
    {"categorical": Categorical, "gaussian": Gaussian, "bernoulli": Bernoulli, "poisson": Poisson},
)


def likelihood_of(value: Any) -> Any:
    """For settings: a table with its `name` as the likelihood that it means; anything else as it is.

    Raises:
        ValueError: there is none of that name.
    """
    if not isinstance(value, Mapping):
        return value
    settings = dict(value)
    name = settings.pop("name", "categorical")
    if not isinstance(name, str) or name not in LIKELIHOODS:
        raise ValueError(f"name {LIKELIHOODS.check_words(str(name))}")
    return LIKELIHOODS[name].model_validate(settings)


__all__ = [
    "LIKELIHOODS",
    "Bernoulli",
    "Categorical",
    "Gaussian",
    "Likelihood",
    "OwnLoss",
    "Poisson",
    "likelihood_of",
    "score_predictions",
]
