"""Models as N particles at once: a hand-batched dense stack, and any torch module."""

from fedstein.models.base import ParticleModel
from fedstein.models.dense import Activation, DenseStack, Precision
from fedstein.models.head import Before, split_head
from fedstein.models.held import Loss
from fedstein.models.module import TorchModule, cross_entropy, particle_model
from fedstein.models.named import Values, digest, fingerprint
from fedstein.models.norms import to_group_norm
from fedstein.models.spec import FEATURES, ModelConfig, Network, Prepare, PriorConfig, network
from fedstein.models.task import Init, Task
from fedstein.models.ways import Way

__all__ = [
    "FEATURES",
    "Activation",
    "Before",
    "DenseStack",
    "Init",
    "Loss",
    "ModelConfig",
    "Network",
    "ParticleModel",
    "Precision",
    "Prepare",
    "PriorConfig",
    "Task",
    "TorchModule",
    "Values",
    "Way",
    "cross_entropy",
    "digest",
    "fingerprint",
    "network",
    "particle_model",
    "split_head",
    "to_group_norm",
]
