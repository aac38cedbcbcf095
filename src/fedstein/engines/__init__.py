"""Engines move messages between the server and the agents; what they carry is the same in each."""

from fedstein.engines.local import ESCROW, RESIDUAL, Note, State, Totals, no_note, rounds, start
from fedstein.engines.memories import Kept, Memories
from fedstein.engines.schedule import Schedule

__all__ = [
    "ESCROW",
    "RESIDUAL",
    "Kept",
    "Memories",
    "Note",
    "Schedule",
    "State",
    "Totals",
    "no_note",
    "rounds",
    "start",
]
