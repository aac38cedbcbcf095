"""fedstein: Bayesian federated learning on thin uplinks, with the right to erasure."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedstein.api import Run, compare, config, explain, open, plan, seams, sweep, train, train_config  # noqa: A004
    from fedstein.data import Examples, columns, from_frame
    from fedstein.errors import DivergedError, FedsteinError, PayloadError, RunError, SilenceError, UserError
    from fedstein.inference import GaussianPrior, UniformPrior
    from fedstein.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood, Poisson
    from fedstein.methods import DSGLD, DSVGD, METHODS, QLSD, CentralSVGD, FedAvg, Method
    from fedstein.metrics import Prediction
    from fedstein.models import to_group_norm
    from fedstein.posterior import Posterior
    from fedstein.protocol.schedule import Schedule
    from fedstein.protocol.uplink import Uplink
    from fedstein.runs.audit.record import Audit
    from fedstein.settings import Config
    from fedstein.version import __version__

# Where each public name is: nothing heavy is imported before it is asked for.
_PLACES = {
    "fedstein.api": ("Run", "compare", "config", "explain", "open", "plan", "seams", "sweep", "train", "train_config"),
    "fedstein.data": ("Examples", "columns", "from_frame"),
    "fedstein.errors": (
        "DivergedError",
        "FedsteinError",
        "PayloadError",
        "RunError",
        "SilenceError",
        "UserError",
    ),
    "fedstein.inference": ("GaussianPrior", "UniformPrior"),
    "fedstein.likelihoods": ("Bernoulli", "Categorical", "Gaussian", "Likelihood", "Poisson"),
    "fedstein.methods": ("DSGLD", "DSVGD", "METHODS", "QLSD", "CentralSVGD", "FedAvg", "Method"),
    "fedstein.metrics": ("Prediction",),
    "fedstein.models": ("to_group_norm",),
    "fedstein.posterior": ("Posterior",),
    "fedstein.protocol.schedule": ("Schedule",),
    "fedstein.protocol.uplink": ("Uplink",),
    "fedstein.runs.audit.record": ("Audit",),
    "fedstein.settings": ("Config",),
    "fedstein.version": ("__version__",),
}
_PLACE_OF = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "DSGLD",
    "DSVGD",
    "METHODS",
    "QLSD",
    "Audit",
    "Bernoulli",
    "Categorical",
    "CentralSVGD",
    "Config",
    "DivergedError",
    "Examples",
    "FedAvg",
    "FedsteinError",
    "Gaussian",
    "GaussianPrior",
    "Likelihood",
    "Method",
    "PayloadError",
    "Poisson",
    "Posterior",
    "Prediction",
    "Run",
    "RunError",
    "Schedule",
    "SilenceError",
    "UniformPrior",
    "Uplink",
    "UserError",
    "__version__",
    "columns",
    "compare",
    "config",
    "explain",
    "from_frame",
    "open",
    "plan",
    "seams",
    "sweep",
    "to_group_norm",
    "train",
    "train_config",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACE_OF:
        raise AttributeError(f"module 'fedstein' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_PLACE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
