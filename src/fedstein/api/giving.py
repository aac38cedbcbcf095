"""What is given in Python and no config can say, and which run of this process was given what."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from fedstein.api.arguments import refuse
from fedstein.data import Held
from fedstein.inference import GaussianPrior, Prior
from fedstein.likelihoods import Likelihood
from fedstein.models import Loss, Precision, Way
from fedstein.runs.given import Given, take_in

__all__ = ["given_to", "remember_given", "take"]

_GIVEN: dict[Path, Given] = {}  # by the run's folder: `open` need not be given it again in this process


def take(
    module: nn.Module,
    agents: Sequence[Any] | Held,
    test: Any,
    loss: Loss | Likelihood,
    prior: Prior | None,
    precision: Precision,
    way: Way | Literal["auto"],
    class_names: Sequence[str],
    device: torch.device,
) -> Given:
    """Check what was given. A Gaussian prior is left out of it: the config says that one.

    Args:
        module: maps inputs to what `loss` takes.
        agents: the data of each.
        test: data to evaluate on, or None.
        loss: a likelihood, or per-example losses.
        prior: any, or None for N(0, I).
        precision: of the products.
        way: how several particles are computed, where the module is no dense stack.
        class_names: what people call the classes.
        device: on which they are computed.
    """
    if prior is not None and not hasattr(prior, "score"):
        raise refuse("prior", "a prior, for instance GaussianPrior(1.0)", prior)
    other = None if isinstance(prior, GaussianPrior) else prior
    return take_in(module, agents, test, loss, other, precision, way, class_names, device)


def remember_given(path: Path, given: Given) -> None:
    """The run in this folder was given this."""
    _GIVEN[path.resolve()] = given


def given_to(path: Path) -> Given | None:
    """What the run in this folder was given by this process; None if nothing is known."""
    return _GIVEN.get(path.resolve())
