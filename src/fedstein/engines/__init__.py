"""Engines move messages between the server and the agents; what they carry is the same in each."""

from fedstein.engines.local import State, rounds, start
from fedstein.engines.schedule import Schedule

__all__ = ["Schedule", "State", "rounds", "start"]
