"""What a module that was given in Python is like, in words: as it was when its run began, and as it is now.

RUN/model.json    the listing of its parameters, the classes of its layers, the loss and the prior

The fingerprint in a run's config decides whether a module is the one; these words say in what another one differs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn

from fedstein.inference import Prior
from fedstein.likelihoods import Categorical, Likelihood
from fedstein.models import Loss, cross_entropy
from fedstein.models.named import listing, unlike_listing
from fedstein.runs.network_files import RECORD, as_listing, read_record
from fedstein.store.files import to_json, write

__all__ = ["Structure", "keep_structure", "kept_structure", "loss_in_words", "prior_in_words", "structure_of"]


@dataclass(frozen=True)
class Structure:
    """A module, a loss and a prior, in words."""

    parameters: dict[str, str]
    layers: dict[str, str]
    loss: str
    prior: str

    def unlike(self, now: Structure, values: str) -> str:
        """In what another one differs, in a line.

        Args:
            now: the other one.
            values: which of the values count as well; they are what differs where nothing else does.
        """
        lines = []
        for then, here in ((self.parameters, now.parameters), (self.layers, now.layers)):
            if list(then.items()) != list(here.items()):  # particles are flat, in the order of the parameters
                lines.append(unlike_listing(then, here))
        for what, before, given in (("loss", self.loss, now.loss), ("prior", self.prior, now.prior)):
            if before != given:
                lines.append(f"the {what} was {before} and is {given}")
        return "; ".join(lines) or f"parameters and layers are alike, and {values} are others"


def structure_of(module: nn.Module, loss: Loss | Likelihood, prior: Prior | None) -> Structure:
    """A module, a loss and a prior, in words."""
    layers = {name: type(part).__qualname__ for name, part in module.named_modules() if name}
    return Structure(listing(module), layers, loss_in_words(loss), prior_in_words(prior))


def loss_in_words(loss: Loss | Likelihood) -> str:
    """A likelihood by what it says of itself, a function by its name."""
    if isinstance(loss, Likelihood) and loss != Categorical():
        return repr(loss)
    # Classes are the same thing as a likelihood and as a loss.
    plain: Any = cross_entropy if isinstance(loss, Likelihood) else loss
    return f"{getattr(plain, '__module__', '')}.{getattr(plain, '__qualname__', type(plain).__name__)}"


def prior_in_words(prior: Prior | None) -> str:
    """A prior by what it says of itself; by its class alone where that is only where it lies in memory."""
    said = repr(prior)
    return f"{type(prior).__module__}.{type(prior).__qualname__}" if " at 0x" in said else said


def keep_structure(run: Path, structure: Structure) -> None:
    """Write it into a run folder."""
    write(run / RECORD, to_json(asdict(structure), indent=2).encode())


def kept_structure(run: Path) -> Structure | None:
    """As a run folder has it; None where it has none, or a damaged one."""
    record = read_record(run)
    parameters, layers = as_listing(record.get("parameters")), as_listing(record.get("layers"))
    loss, prior = record.get("loss"), record.get("prior")
    if parameters is None or layers is None or not isinstance(loss, str) or not isinstance(prior, str):
        return None
    return Structure(parameters, layers, loss, prior)
