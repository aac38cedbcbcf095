"""How things are called on all pages: metrics, sizes, data."""

from __future__ import annotations

import torch

from fedstein.metrics.names import NAMES
from fedstein.runs.evaluation import Loaded
from fedstein.settings import Config

__all__ = ["NAMES", "capital", "data_name", "human_bytes", "who_predicts"]

_MEMBERS = {  # one of them, and more
    "window": ("the turn mean of the window", "turn means of the window"),
    "gaussian": ("a draw around the window", "draws around the window"),
    "mean": ("the mean of the window", "means of the windows"),
    "last": ("the last particle", "last particles"),
}


def capital(text: str) -> str:
    """With a capital letter first, and the rest as it is.

    >>> capital("error of the ECE")
    'Error of the ECE'
    """
    return text[0].upper() + text[1:]


def data_name(config: Config) -> str:
    """What the data of a run is called."""
    return "given data" if config.is_given else config.data.name


def human_bytes(bits: float) -> str:
    """For people.

    >>> human_bytes(79_510)
    '9.9 kB'
    """
    size, units = bits / 8, ["B", "kB", "MB", "GB"]
    while size >= 1000 and len(units) > 1:
        size /= 1000
        units.pop(0)
    return f"{size:,.0f} B" if units[0] == "B" else f"{size:,.1f} {units[0]}"


def who_predicts(loaded: Loaded) -> str:
    """The members of a run's posterior; the particles themselves before its first turn is whole."""
    kind = "last" if torch.equal(loaded.members, loaded.particles) else loaded.config.posterior.from_
    one, several = _MEMBERS.get(kind, ("one member", "members"))
    return one if len(loaded.members) == 1 else f"the mixture of {len(loaded.members):,} {several}"
