"""Tensors that may rest on disk: what was saved can be let go of, and is loaded again where it is needed."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

__all__ = ["Slot"]

Tensors = dict[str, Tensor]


class Slot:
    """Tensors by name. They do not change; where they rest may."""

    def __init__(self, tensors: Tensors | None = None, load: Callable[[], Tensors] | None = None) -> None:
        self._tensors, self._load = tensors, load

    @property
    def bytes(self) -> int:
        """What they take in memory now."""
        return sum(value.nbytes for value in (self._tensors or {}).values())

    def get(self) -> Tensors:
        """The tensors, loaded if they have to be."""
        if self._tensors is not None:
            return self._tensors
        assert self._load is not None
        return self._load()

    def rests(self, load: Callable[[], Tensors]) -> None:
        """They were saved: `load` brings them back."""
        self._load = load

    def let_go(self) -> None:
        """Free the memory of what was saved."""
        if self._load is not None:
            self._tensors = None
