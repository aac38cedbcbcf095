"""Entry coders: the signed levels of the kept entries.

Each alternative is a module of its own, with the same names in the same order.
"""

from fedstein.coding.entries.adaptive import Adaptive
from fedstein.coding.entries.base import EntryCoder, Levels
from fedstein.coding.entries.fixed import Fixed
from fedstein.registry import Registry

__all__ = ["ENTRY_CODERS", "EntryCoder", "Levels"]

ENTRY_CODERS: Registry[EntryCoder] = Registry(
    "entry coder", "the levels of the kept entries, as bits", {"fixed": Fixed(), "adaptive": Adaptive()}
)
