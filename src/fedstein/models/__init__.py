"""Networks as particles: any `torch.nn.Module`, and a fast path for dense stacks."""

from fedstein.models.base import ParticleModel
from fedstein.models.dense import Activation, DenseStack, Precision
from fedstein.models.module import Loss, TorchModule, cross_entropy, particle_model

__all__ = [
    "Activation",
    "DenseStack",
    "Loss",
    "ParticleModel",
    "Precision",
    "TorchModule",
    "cross_entropy",
    "particle_model",
]
