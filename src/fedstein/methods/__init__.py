"""Methods, one file each. A new one: copy the nearest file, add one line to `METHODS`, write its test."""

from fedstein.methods.base import BayesianMethod, Memory, Method, Visit, minibatches
from fedstein.methods.dsgld import DSGLD
from fedstein.methods.dsvgd import DSVGD
from fedstein.methods.fedavg import FedAvg
from fedstein.methods.forget import ForgetSVGD, TakeBack
from fedstein.methods.qlsd import QLSD
from fedstein.methods.svgd import CentralSVGD

METHODS: dict[str, type[Method]] = {
    "dsvgd": DSVGD,
    "fedavg": FedAvg,
    "svgd": CentralSVGD,
    "dsgld": DSGLD,
    "qlsd": QLSD,
}

__all__ = [
    "DSGLD",
    "DSVGD",
    "METHODS",
    "QLSD",
    "BayesianMethod",
    "CentralSVGD",
    "FedAvg",
    "ForgetSVGD",
    "Memory",
    "Method",
    "TakeBack",
    "Visit",
    "minibatches",
]
