"""What the agents keep between visits, in memory or on disk.

Thousands of agents' memories need not fit into memory at once: whoever saves them (`runs/`) may let them go, and
each is then loaded for the one visit that needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fedstein.methods import Memory
from fedstein.slots import Slot

__all__ = ["Memories"]


class Memories(Mapping[int, Memory]):
    """The memories by agent, as they were after one round."""

    def __init__(self, slots: Mapping[int, Slot] | None = None) -> None:
        self.slots: Mapping[int, Slot] = slots or {}

    def __getitem__(self, agent: int) -> Memory:
        return self.slots[agent].get()

    def __contains__(self, agent: object) -> bool:
        return agent in self.slots

    def __iter__(self) -> Iterator[int]:
        return iter(self.slots)

    def __len__(self) -> int:
        return len(self.slots)

    def without(self, agents: Iterable[int]) -> Memories:
        """These memories without those of some agents."""
        gone = set(agents)
        return Memories({agent: slot for agent, slot in self.slots.items() if agent not in gone})

    def put(self, changed: Mapping[int, Memory]) -> Memories:
        """These memories with some changed; an empty one is none."""
        slots = {agent: slot for agent, slot in self.slots.items() if agent not in changed}
        return Memories(slots | {agent: Slot(memory) for agent, memory in changed.items() if memory})
