"""What a data source is: where examples come from, and what people call their classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fedstein.data.examples import Dataset, Examples

if TYPE_CHECKING:
    from fedstein.data.settings import DataConfig

__all__ = ["Held", "Source"]


@dataclass(frozen=True)
class Held:
    """Examples that are with their agents already: what the server has of them."""

    agents: list[Examples]  # empty ones where they are on machines of their own
    test: Examples
    classes: int | None  # None: the targets are no labels
    class_names: tuple[str, ...] = ()  # what people call them
    agent_names: tuple[str, ...] = ()  # what people call the agents
    settings: Mapping[str, Any] = field(default_factory=dict)  # of `data`, found when it was read: a run keeps them
    notes: tuple[str, ...] = ()  # what was made of it, for people
    groups: tuple[Tensor, ...] = ()  # a number for each example: those of one number are held out together
    contents: Mapping[str, Mapping[str, Path | str]] = field(default_factory=dict)  # of its files (contents.py)


@dataclass(frozen=True)
class Source:
    """A data source. It has `load`, `held` or `read`; one with none of them is made elsewhere (synthetic, Python).

    Args:
        about: what it is, in a line.
        load: (data.path or None) -> all examples; a partitioner then says who holds which.
        held: (data.path, how many agents, whether they are elsewhere) -> everybody's own examples.
        read: (the settings, whether the agents are elsewhere) -> either of these.
        get: obtains it, and returns the folder and how it came there.
        where: the folder in which it is on this machine, or None.
        own: the user's own files: 'data.path' names them.
        class_names: what people call the classes; numbers if it is empty.
    """

    about: str
    load: Callable[[Path | None], Dataset] | None = None
    held: Callable[[Path, int, bool], Held] | None = None
    read: Callable[[DataConfig, bool], Dataset | Held] | None = None
    get: Callable[[], tuple[Path, str]] | None = None
    where: Callable[[], Path | None] | None = None
    own: bool = False
    class_names: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether it can be used at once, with no file to name or to get."""
        return not self.own and (self.where is None or self.where() is not None)
