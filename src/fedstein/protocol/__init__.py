"""The protocol: what server and agents say to each other, whatever carries it.

agent: order -> answer; server: (state, answers) -> (state, what is told).
"""

from fedstein.protocol.agent import RESIDUAL, Waiting, answer, settle
from fedstein.protocol.memories import Memories
from fedstein.protocol.messages import Answer, Engine, Failure, Note, Order, Outcome, Terms, no_note
from fedstein.protocol.patience import Patience
from fedstein.protocol.schedule import SCHEDULERS, Schedule, Scheduler
from fedstein.protocol.state import ESCROW, Metrics, State, Told, Totals
from fedstein.protocol.uplink import Uplink

__all__ = [
    "ESCROW",
    "RESIDUAL",
    "SCHEDULERS",
    "Answer",
    "Engine",
    "Failure",
    "Memories",
    "Metrics",
    "Note",
    "Order",
    "Outcome",
    "Patience",
    "Schedule",
    "Scheduler",
    "State",
    "Terms",
    "Told",
    "Totals",
    "Uplink",
    "Waiting",
    "answer",
    "no_note",
    "settle",
]
