"""Partitioners: which training examples each agent holds, as lists of indices."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from fedstein.errors import UserError
from fedstein.registry import Registry

if TYPE_CHECKING:
    from fedstein.data.settings import DataConfig

__all__ = ["PARTITIONERS", "Partitioner", "class_pairs", "dirichlet", "from_indices", "iid"]

# The pair (2, 9) asks to be forgotten in the letter's study; nobody else holds those labels.
LETTER_PAIRS = ((0, 1), (2, 9), (3, 4), (5, 6), (7, 8))


def iid(labels: Tensor, agents: int, examples: int | None, generator: torch.Generator) -> list[Tensor]:
    """`examples` random examples each (all of them, in equal parts, if None)."""
    share = len(labels) // agents if examples is None else examples
    if share < 1 or share * agents > len(labels):
        raise UserError(
            f"The 'data.agents' times 'data.examples' must be at most the {len(labels)} training examples, with at "
            f"least one each. Got {agents} agents, {share} examples."
        )
    order = torch.randperm(len(labels), generator=generator)
    return list(order[: share * agents].view(agents, share))


def class_pairs(labels: Tensor, agents: int, examples: int | None, generator: torch.Generator) -> list[Tensor]:
    """The letter's unlearning split: each agent holds two classes, half of its examples from each.

    Ten classes make the pairs (0, 1), (2, 9), (3, 4), (5, 6), (7, 8); other even numbers of classes are
    paired in order. Agents are divided evenly over the pairs, in order: with ten agents, 2 and 3 hold (2, 9).
    """
    classes = int(labels.max()) + 1
    if classes % 2:
        raise UserError(f"The 'data.partition' class-pairs needs an even number of classes. Got {classes} instead.")
    pairs = LETTER_PAIRS if classes == 10 else tuple((c, c + 1) for c in range(0, classes, 2))
    if agents % len(pairs):
        raise UserError(
            f"The 'data.agents' of partition class-pairs must be a multiple of {len(pairs)}, "
            f"the number of pairs. Got {agents} instead."
        )
    holders = agents // len(pairs)
    holdings: list[Tensor] = []
    for pair in pairs:
        orders = []
        for label in pair:
            members = (labels == label).nonzero()[:, 0]
            orders.append(members[torch.randperm(len(members), generator=generator)])
        most = min(map(len, orders)) // holders * 2
        wanted = most if examples is None else examples
        if wanted % 2 or not 2 <= wanted <= most:
            raise UserError(
                f"The 'data.examples' of partition class-pairs must be an even number in 2..{most} "
                f"with {holders} agents on classes {pair}. Got {wanted} instead."
            )
        half = wanted // 2
        holdings += [torch.cat([order[i * half : (i + 1) * half] for order in orders]) for i in range(holders)]
    return holdings


def dirichlet(
    labels: Tensor, agents: int, examples: int | None, concentration: float, generator: torch.Generator
) -> list[Tensor]:
    """Each class is divided over the agents by shares from a symmetric Dirichlet (Hsu et al., 2019).

    A small concentration gives each class to few agents. Every agent gets at least one example: the
    largest holdings give one away where a draw leaves somebody with none.
    """
    if agents > len(labels):
        raise UserError(f"The 'data.agents' must be at most the {len(labels)} training examples. Got {agents} instead.")
    seed = int(torch.randint(2**62, (1,), generator=generator))
    random = np.random.default_rng(seed)
    pieces: list[list[Tensor]] = [[] for _ in range(agents)]
    for label in torch.unique(labels):
        members = (labels == label).nonzero()[:, 0]
        members = members[torch.randperm(len(members), generator=generator)]
        shares = random.dirichlet([concentration] * agents).cumsum()
        cuts = np.concatenate([[0], (shares[:-1] * len(members)).round().astype(int), [len(members)]])
        for agent, (start, end) in enumerate(pairwise(cuts)):
            pieces[agent].append(members[start:end])
    parts = [torch.cat(own) for own in pieces]
    for agent in range(agents):
        if len(parts[agent]) == 0:
            richest = max(range(agents), key=lambda other: len(parts[other]))
            parts[agent], parts[richest] = parts[richest][-1:], parts[richest][:-1]
    parts = [part[torch.randperm(len(part), generator=generator)] for part in parts]
    return parts if examples is None else [part[:examples] for part in parts]


def from_indices(labels: Tensor, indices: Sequence[Sequence[int]]) -> list[Tensor]:
    """Explicit lists, one an agent. An index may occur once only."""
    parts, seen = [], torch.zeros(len(labels), dtype=torch.bool)
    for agent, part in enumerate(indices):
        if len(part) == 0:
            raise UserError(f"The 'data.indices' of agent {agent} must not be empty: leave the agent out instead.")
        own = torch.as_tensor(list(part), dtype=torch.int64)
        if int(own.min()) < 0 or int(own.max()) >= len(labels):
            raise UserError(
                f"The 'data.indices' of agent {agent} must be in 0..{len(labels) - 1}. "
                f"Got {int(own.min())}..{int(own.max())} instead."
            )
        if seen[own].any() or len(torch.unique(own)) != len(own):
            raise UserError(f"The 'data.indices' of agent {agent} name an example twice, or one of another agent.")
        seen[own] = True
        parts.append(own)
    return parts


class Partitioner(Protocol):
    """Says who holds which of the training examples."""

    def __call__(self, labels: Tensor, data: DataConfig, generator: torch.Generator) -> list[Tensor]:
        """The indices of each agent's examples.

        Args:
            labels: (n,) of all training examples.
            data: the settings, `agents` and `examples` among them.
            generator: of every draw; it begins at the same place for the same seed.

        Returns:
            One tensor of int64 indices for each of `data.agents` agents. No index twice, nobody with none.
        """
        ...


def _iid(labels: Tensor, data: DataConfig, generator: torch.Generator) -> list[Tensor]:
    return iid(labels, data.agents, data.examples, generator)


def _class_pairs(labels: Tensor, data: DataConfig, generator: torch.Generator) -> list[Tensor]:
    return class_pairs(labels, data.agents, data.examples, generator)


def _dirichlet(labels: Tensor, data: DataConfig, generator: torch.Generator) -> list[Tensor]:
    return dirichlet(labels, data.agents, data.examples, data.concentration, generator)


def _indices(labels: Tensor, data: DataConfig, generator: torch.Generator) -> list[Tensor]:
    if data.indices is None:
        raise UserError("The 'data.indices' must name a JSON file when data.partition is 'indices'. Got nothing.")
    try:
        lists = json.loads(Path(data.indices).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"Cannot read 'data.indices' {data.indices} as JSON: {error}.") from error
    whole = isinstance(lists, list) and all(
        isinstance(part, list) and all(type(i) is int and abs(i) < 2**62 for i in part) for part in lists
    )
    if not whole or len(lists) != data.agents:
        raise UserError(f"The file {data.indices} must be {data.agents} lists of whole numbers, one for each agent.")
    return from_indices(labels, lists)


PARTITIONERS: Registry[Partitioner] = Registry(
    "partitioner",
    "who holds which examples (data.partition)",
    {"iid": _iid, "class-pairs": _class_pairs, "dirichlet": _dirichlet, "indices": _indices},
)
