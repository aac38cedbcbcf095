"""The mixture as one module: inputs in, the prediction of all particles out, by name."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedstein.export.networks import with_particle
from fedstein.likelihoods import Likelihood
from fedstein.models import split_head
from fedstein.models.held import single_output

__all__ = ["Mixture", "mixture_of", "told"]

_NAMES = ("probabilities", "mean", "std", "aleatoric", "epistemic")


def told(likelihood: Likelihood, outputs: Tensor) -> dict[str, Tensor]:
    """What a mixture says of outputs (N, B, ...): its prediction by name, or the outputs where there is none.

    >>> from fedstein.likelihoods import Categorical
    >>> list(told(Categorical(), torch.zeros(3, 2, 10)))
    ['probabilities', 'aleatoric', 'epistemic']
    """
    if not likelihood.predicts:
        return {"outputs": outputs.transpose(0, 1)}  # (B, N, ...): everything has a row for each input
    prediction = likelihood.predict(outputs)
    return {name: getattr(prediction, name) for name in _NAMES if hasattr(prediction, name)}


class Mixture(nn.Module):
    """Particles after a frozen part that is computed once.

    Args:
        before: the frozen part; `nn.Identity` where there is none, or it cannot be told apart.
        networks: one for each particle.
        likelihood: what their outputs mean.
    """

    def __init__(self, before: nn.Module, networks: Sequence[nn.Module], likelihood: Likelihood) -> None:
        super().__init__()
        self.before, self.networks = before, nn.ModuleList(networks)
        self._likelihood = likelihood

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """The prediction of (B, ...) inputs."""
        ready = single_output(self.before(x.clone()))
        # A clone for each: a network may change its inputs in place.
        outputs = [single_output(network(ready.clone())) for network in self.networks]
        return told(self._likelihood, torch.stack(outputs))


def mixture_of(network: nn.Module, particles: Tensor, likelihood: Likelihood, example: Tensor) -> Mixture:
    """The mixture of particles.

    Args:
        network: with gradients where something is learnt.
        particles: (N_p, d).
        likelihood: of the run.
        example: some inputs (B, ...), on which it is tried whether the frozen part can be told apart.
    """
    frozen = any(not p.requires_grad for p in network.parameters())
    split = split_head(network, example) if frozen else None
    head, before = (network, nn.Identity()) if split is None else (split[0], split[1].as_module())
    mixture = Mixture(before, [with_particle(head, particle) for particle in particles], likelihood)
    return mixture.eval().requires_grad_(False)
