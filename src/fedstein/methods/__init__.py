"""Methods, one file each. A new one: copy the nearest file, add one line to `METHODS`, write its test."""

from fedstein.methods.base import BayesianMethod, Memory, Method, Visit, minibatches
from fedstein.methods.dsgld import DSGLD
from fedstein.methods.dsvgd import DSVGD
from fedstein.methods.factors import FACTORS, Factor
from fedstein.methods.fedavg import FedAvg
from fedstein.methods.forget_svgd import ForgetSVGD
from fedstein.methods.qlsd import QLSD
from fedstein.methods.svgd import CentralSVGD
from fedstein.methods.take_back import TakeBack
from fedstein.registry import Registry

METHODS: Registry[type[Method]] = Registry(
    "method",
    "how a model is learnt (method.name)",
    {"dsvgd": DSVGD, "fedavg": FedAvg, "svgd": CentralSVGD, "dsgld": DSGLD, "qlsd": QLSD},
)
FORGETTING: dict[str, type[ForgetSVGD] | type[TakeBack]] = {"forget-svgd": ForgetSVGD, "take-back": TakeBack}
"""What agents do that asked to be forgotten. Which of them a method knows, it says itself (`Method.forgets_by`)."""

__all__ = [
    "DSGLD",
    "DSVGD",
    "FACTORS",
    "FORGETTING",
    "METHODS",
    "QLSD",
    "BayesianMethod",
    "CentralSVGD",
    "Factor",
    "FedAvg",
    "ForgetSVGD",
    "Memory",
    "Method",
    "TakeBack",
    "Visit",
    "minibatches",
]
