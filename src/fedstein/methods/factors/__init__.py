"""Agent factors, one file each."""

from fedstein.methods.factors.base import Factor
from fedstein.methods.factors.flat import Flat
from fedstein.methods.factors.kde import Kde
from fedstein.methods.factors.linear import Linear
from fedstein.registry import Registry

__all__ = ["FACTORS", "Factor", "Flat", "Kde", "Linear"]

FACTORS: Registry[Factor] = Registry(
    "factor",
    "what an agent remembers of its own contribution, t_k (method.factor)",
    {factor.name: factor for factor in (Flat(), Kde(), Linear())},
)
