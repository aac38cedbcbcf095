"""Does a data source, or a partitioner, of one's own keep what is asked of it?

>>> from fedstein.data import PARTITIONERS
>>> check_partitioner(PARTITIONERS["iid"])
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from fedstein.data import DataConfig, Dataset, Examples, Held, Partitioner, Source, loaded
from fedstein.streams import stream
from fedstein.testing.parts import that, working

__all__ = ["check_data_source", "check_partitioner"]


def check_partitioner(partitioner: Partitioner, data: DataConfig | None = None, labels: Tensor | None = None) -> None:
    """A partitioner gives every agent examples of its own, and always the same for the same generator.

    Args:
        partitioner: the function.
        data: settings that it can work with; five agents if left out.
        labels: of the training examples; 300 of ten classes if left out.

    Raises:
        AssertionError: with a sentence that says what is wrong.
    """
    data = DataConfig(name="digits", agents=5) if data is None else data
    labels = torch.arange(300)[torch.randperm(300, generator=stream(0, "labels"))] % 10 if labels is None else labels
    before = labels.clone()
    with working("The partitioner"):
        parts = partitioner(labels, data, stream(3, "partition"))
        again = partitioner(labels, data, stream(3, "partition"))
    that(torch.equal(labels, before), "The partitioner changes the labels that it is given.")
    that(len(parts) == data.agents, f"The partitioner must give {data.agents} parts, one an agent. Got {len(parts)}.")
    for agent, part in enumerate(parts):
        words = f"The indices of agent {agent}"
        fits = isinstance(part, Tensor) and part.dtype == torch.int64 and part.dim() == 1
        that(fits, f"{words} must be a tensor (n,) of int64. Got {part!r}.")
        that(len(part), f"{words} are none: nobody may be left empty.")
        inside = int(part.min()) >= 0 and int(part.max()) < len(labels)
        that(inside, f"{words} must be in 0..{len(labels) - 1}. Got {int(part.min())}..{int(part.max())}.")
    together = torch.cat(parts)
    that(
        len(torch.unique(together)) == len(together), "The partitioner gives an example to two agents, or twice to one."
    )
    same = all(torch.equal(one, other) for one, other in zip(parts, again, strict=True))
    that(same, "The partitioner must draw from the generator alone. A second call with an equal one differs.")


_NUMBERS = (torch.float32, torch.float64, torch.int64, torch.uint8)


def check_data_source(source: Source, path: Path | None = None, agents: int = 2) -> None:
    """A data source says what it is, and gives numbers as inputs and int64 labels of one shape, always the same.

    Args:
        source: it; one with neither `load` nor `held` has only its words to check.
        path: `data.path`, where it needs one.
        agents: how many there are, where it holds their examples apart.

    Raises:
        AssertionError: with a sentence that says what is wrong.
    """
    about = source.about
    that(isinstance(about, str) and about and "\n" not in about, "A source must say what it is about, in a line.")
    that(source.load is None or source.held is None, "A source must have load() or held(), not both.")
    if source.load is not None:
        with working("load()"):
            dataset, again = source.load(path), source.load(path)
        that(isinstance(dataset, Dataset), f"load() must give a Dataset. Got {type(dataset).__name__}.")
        several = {"train": dataset.train, "test": dataset.test}
        others = {"train": again.train, "test": again.test}
        classes = dataset.classes
    elif source.held is not None:
        that(path is not None, "A source that holds the agents' examples apart needs the path to a folder of them.")
        assert path is not None
        with working("held()"):
            held, second = (source.held(path, agents, False) for _ in range(2))
            remote = source.held(path, agents, True)
        that(isinstance(held, Held), f"held() must give Held. Got {type(held).__name__}.")
        counts = len(held.agents), len(remote.agents)
        that(counts == (agents, agents), f"held() must give {agents} agents, elsewhere or not. Got {counts}.")
        that(not any(map(len, remote.agents)), "held() must give empty examples of agents that are elsewhere.")
        several = {"test": held.test} | {f"agent {k}": data for k, data in enumerate(held.agents)}
        others = {"test": second.test} | {f"agent {k}": data for k, data in enumerate(second.agents)}
        classes = held.classes
    else:
        return
    names = len(source.class_names)
    that(names in (0, classes), f"class_names must be none or one for each of {classes} classes. Got {names}.")
    shape = several["test"].x.shape[1:]
    for name, data in several.items():
        _check_examples(name, data, shape, classes)
        same = torch.equal(loaded(data.x), loaded(others[name].x)) and torch.equal(data.y, others[name].y)
        that(same, f"The examples of {name} must be the same each time. They differ.")


def _check_examples(name: str, data: Examples, shape: torch.Size, classes: int | None) -> None:
    that(len(data) and len(data.x) == len(data.y), f"{name} must have examples, and as many x as y.")
    that(data.x.dtype in _NUMBERS, f"{name}: x must be float32, float64, int64 or uint8. Got {data.x.dtype}.")
    that(torch.isfinite(loaded(data.x)).all(), f"{name}: x must be finite.")
    sizes = f"Got {tuple(data.x.shape[1:])} and {tuple(shape)}."
    that(data.x.shape[1:] == shape, f"{name}: x must be shaped like that of test. {sizes}")
    labels = data.y
    if classes is None:
        that(not labels.is_floating_point() or torch.isfinite(labels).all(), f"{name}: y must be finite.")
        return
    that(labels.dtype == torch.int64 and labels.dim() == 1, f"{name}: y must be int64 (n,). Got {labels.dtype}.")
    ends = int(labels.min()), int(labels.max())
    that(ends[0] >= 0 and ends[1] < classes, f"{name}: y must be in 0..{classes - 1}. Got {ends[0]}..{ends[1]}.")
