"""Data sources, one file each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedstein.data.sources import cifar10, digits, fashion_mnist, files, flights, images, own, table, watch
from fedstein.data.sources.base import Held, Source
from fedstein.registry import Registry

if TYPE_CHECKING:
    from fedstein.data.settings import DataConfig

__all__ = ["SOURCES", "Held", "Source", "class_names"]

SOURCES: Registry[Source] = Registry(
    "data source",
    "where examples come from (data.name)",
    {
        "fashion-mnist": fashion_mnist.SOURCE,
        "cifar10": cifar10.SOURCE,
        "digits": digits.SOURCE,
        "flights": flights.SOURCE,
        "watch": watch.SOURCE,
        "npz": files.NPZ,
        "folder": files.FOLDER,
        "table": table.SOURCE,
        "images": images.SOURCE,
        "source": own.SOURCE,
        "synthetic-gaussian": Source("Gaussian means with a known posterior (one agent a batch of observations)"),
        "synthetic-mixture": Source(
            "two agents, a mixture of two Gaussians each, in one dimension; the exact product is known"
        ),
        "given": Source("what fedstein.train was given in Python", own=True),
    },
)


def class_names(data: DataConfig, classes: int) -> list[str]:
    """What people call the classes: as the settings say, or the source; their numbers where nobody has names."""
    names = data.class_names or SOURCES[data.name].class_names
    return list(names) if len(names) == classes else [str(label) for label in range(classes)]
