"""What each agent keeps, as files of its own: RUN/agents/agent-K/round-N.safetensors, so that they can be purged.

An agent's file is written when what it keeps has changed, and stays as long as a checkpoint needs it. Memories that
would not fit into memory all at once rest on disk, and are loaded for the visit that needs them.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from fedstein.protocol.memories import Memories
from fedstein.store import checkpoints
from fedstein.store.checkpoints import Checkpoint, agent_file
from fedstein.store.files import load_tensors, save_tensors

__all__ = ["MEMORY", "AgentFiles"]

MEMORY = 1 << 30  # bytes of agents' memories that may stay in memory


class AgentFiles:
    """The agents' files of a run folder, and whose memory is not in them yet."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._changed: set[int] = set()
        self._versions: dict[int, list[tuple[int, str]]] = {}  # round and SHA-256 of each agent's files, oldest first

    def change(self, agents: Iterable[int], memories: Memories) -> None:
        """Some agents keep something else now; of those that are not there any more nothing has to be written."""
        self._changed = {agent for agent in {*self._changed, *agents} if agent in memories}

    def pending(self, memories: Memories) -> int:
        """Bytes that are not on disk yet."""
        return sum(memories.slots[agent].bytes for agent in self._changed)

    def too_much(self, memories: Memories) -> bool:
        """Whether what is not on disk yet should not wait for a checkpoint."""
        return self.pending(memories) > MEMORY

    def save(self, memories: Memories, round: int) -> None:
        """Write what has changed."""

        def save_one(agent: int) -> tuple[int, str]:
            path = agent_file(self._run, agent, round)
            path.parent.mkdir(parents=True, exist_ok=True)
            slot = memories.slots[agent]
            digest = save_tensors(path, slot.get())
            slot.rests(partial(load_tensors, path))
            return round, digest

        changed = sorted(self._changed)
        with ThreadPoolExecutor(4) as pool:  # most of it is waiting for the disk
            for agent, version in zip(changed, pool.map(save_one, changed), strict=True):
                versions = self._versions.setdefault(agent, [])
                versions[:] = [other for other in versions if other[0] != round] + [version]
        if self.too_much(memories):
            for agent in changed:
                memories.slots[agent].let_go()
        self._changed = set()

    def newest(self, memories: Memories) -> dict[int, tuple[int, str]]:
        """The file of each agent that a checkpoint made now needs."""
        return {agent: versions[-1] for agent, versions in self._versions.items() if agent in memories}

    def rest(self, memories: Memories) -> None:
        """Free the memory of what is on disk, where it is too much."""
        resident = [memories.slots[agent] for agent in self._versions if agent in memories]
        if sum(slot.bytes for slot in resident) > MEMORY:
            for slot in resident:
                slot.let_go()

    def prune(self, oldest: int) -> None:
        """Delete what no checkpoint from round `oldest` on needs."""
        for agent, versions in self._versions.items():
            while len(versions) > 1 and versions[1][0] <= oldest:
                agent_file(self._run, agent, versions.pop(0)[0]).unlink(missing_ok=True)

    def tidy(self) -> None:
        """After a stop: know the files that checkpoints name, and delete all others."""
        versions: dict[int, set[tuple[int, str]]] = {}
        for checkpoint in checkpoints.newest(self._run):
            if isinstance(checkpoint, Checkpoint):
                for agent, version in checkpoint.agents.items():
                    versions.setdefault(agent, set()).add(version)
        self._versions = {agent: sorted(files) for agent, files in versions.items()}
        needed = {agent_file(self._run, agent, round) for agent, files in versions.items() for round, _ in files}
        for file in (self._run / "agents").glob("agent-*/round-*.safetensors"):
            if file not in needed:
                file.unlink()
