"""fedstein: Bayesian federated learning on thin uplinks, with the right to erasure."""

from importlib.metadata import version

from fedstein.config import UplinkConfig
from fedstein.engines import Schedule
from fedstein.errors import DivergedError, FedsteinError, PayloadError, UserError
from fedstein.inference import GaussianPrior, UniformPrior
from fedstein.methods import DSGLD, DSVGD, METHODS, CentralSVGD, FedAvg, Method
from fedstein.metrics import Prediction
from fedstein.training import Trained, train

__version__ = version("fedstein")

__all__ = [
    "DSGLD",
    "DSVGD",
    "METHODS",
    "CentralSVGD",
    "DivergedError",
    "FedAvg",
    "FedsteinError",
    "GaussianPrior",
    "Method",
    "PayloadError",
    "Prediction",
    "Schedule",
    "Trained",
    "UniformPrior",
    "UplinkConfig",
    "UserError",
    "__version__",
    "train",
]
