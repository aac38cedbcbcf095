"""Partitioners: which training examples each agent holds, as lists of indices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from fedstein.errors import UserError

__all__ = ["class_pairs", "dirichlet", "from_indices", "iid"]

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
    found: list[Tensor] = []
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
        found += [torch.cat([order[i * half : (i + 1) * half] for order in orders]) for i in range(holders)]
    return found


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
    holdings: list[list[Tensor]] = [[] for _ in range(agents)]
    for label in torch.unique(labels):
        members = (labels == label).nonzero()[:, 0]
        members = members[torch.randperm(len(members), generator=generator)]
        shares = random.dirichlet([concentration] * agents).cumsum()
        cuts = np.concatenate([[0], (shares[:-1] * len(members)).round().astype(int), [len(members)]])
        for agent, (start, end) in enumerate(pairwise(cuts)):
            holdings[agent].append(members[start:end])
    found = [torch.cat(parts) for parts in holdings]
    for agent in range(agents):
        if len(found[agent]) == 0:
            richest = max(range(agents), key=lambda other: len(found[other]))
            found[agent], found[richest] = found[richest][-1:], found[richest][:-1]
    found = [part[torch.randperm(len(part), generator=generator)] for part in found]
    return found if examples is None else [part[:examples] for part in found]


def from_indices(labels: Tensor, indices: Sequence[Sequence[int]]) -> list[Tensor]:
    """Explicit lists, one an agent. An index may occur once only."""
    found, seen = [], torch.zeros(len(labels), dtype=torch.bool)
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
        found.append(own)
    return found
