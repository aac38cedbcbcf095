"""``flat``: t_k = 1 always. Every visit counts the data again; the letter's experiments come close to this."""

from __future__ import annotations

from typing import ClassVar

from fedstein.methods.factors.base import Factor

__all__ = ["Flat"]


class Flat(Factor):
    """Remembers nothing."""

    name: ClassVar[str] = "flat"
    summary: ClassVar[str] = "t_k = 1: good for agents with alike data, who may be counted again at every visit"
