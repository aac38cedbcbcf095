"""shuffled: everybody once in each turn, in an order that is drawn anew for every turn."""

from __future__ import annotations

import torch

from fedstein.streams import stream

__all__ = ["shuffled"]


def shuffled(round: int, agents: int, count: int, seed: int) -> list[int]:
    """The agents of a round.

    Places are numbered through all rounds; a turn is `agents` of them. A round that reaches into the next turn takes
    only agents that it does not have yet.
    """
    picked: list[int] = []
    turn, place = divmod(round * count, agents)
    while len(picked) < count:
        order = torch.randperm(agents, generator=stream(seed, "shuffled", turn)).tolist()
        picked += [agent for agent in order[place:] if agent not in picked][: count - len(picked)]
        turn, place = turn + 1, 0
    return picked
