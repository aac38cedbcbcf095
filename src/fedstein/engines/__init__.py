"""Engines move messages between the server and the agents; what they carry is the same in each."""

from fedstein.engines.agent import RESIDUAL
from fedstein.engines.gather import Patience
from fedstein.engines.local import Local
from fedstein.engines.memories import Kept, Memories
from fedstein.engines.messages import Answer, Applied, Engine, Failure, Note, Order, Terms, no_note
from fedstein.engines.schedule import Schedule
from fedstein.engines.server import ESCROW, State, Totals, rounds, start

__all__ = [
    "ESCROW",
    "RESIDUAL",
    "Answer",
    "Applied",
    "Engine",
    "Failure",
    "Kept",
    "Local",
    "Memories",
    "Note",
    "Order",
    "Patience",
    "Schedule",
    "State",
    "Terms",
    "Totals",
    "no_note",
    "rounds",
    "start",
]
