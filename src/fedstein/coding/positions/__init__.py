r"""Position coders: which k of d entries were kept, in close to :math:`\log_2 \binom dk` bits.

Each alternative is a module of its own, with the same names in the same order.
"""

from fedstein.coding.positions.base import PositionCoder, Positions, bound_bits
from fedstein.coding.positions.enumerative import Enumerative
from fedstein.coding.positions.golomb import Golomb
from fedstein.coding.positions.informed import Informed
from fedstein.coding.positions.range import Range
from fedstein.registry import Registry

__all__ = ["POSITION_CODERS", "PositionCoder", "Positions", "bound_bits"]

POSITION_CODERS: Registry[PositionCoder] = Registry(
    "position coder",
    "where the kept entries are, as bits",
    {"golomb": Golomb(), "range": Range(), "enumerative": Enumerative(), "informed": Informed()},
)
