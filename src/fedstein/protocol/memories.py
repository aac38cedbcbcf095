"""What the agents keep between visits, in memory or on disk.

Thousands of agents' memories need not fit into memory at once: whoever saves them (`runs/`) may let them go, and
each is then loaded for the one visit that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from fedstein.methods import Memory

__all__ = ["Memories", "Slot"]


class Slot:
    """One agent's memory. It does not change; where it rests may."""

    def __init__(self, memory: Memory | None = None, load: Callable[[], Memory] | None = None) -> None:
        self._memory, self._load = memory, load

    @property
    def bytes(self) -> int:
        """What it takes in memory now."""
        return sum(value.nbytes for value in (self._memory or {}).values())

    def get(self) -> Memory:
        """The memory, loaded if it has to be."""
        if self._memory is not None:
            return self._memory
        assert self._load is not None
        return self._load()

    def rests(self, load: Callable[[], Memory]) -> None:
        """It was saved: `load` brings it back."""
        self._load = load

    def let_go(self) -> None:
        """Free the memory of what was saved."""
        if self._load is not None:
            self._memory = None


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
