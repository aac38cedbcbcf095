"""Coding: a hard bit budget in, real bytes out. Pure functions on numpy arrays, usable alone.

Four seams are open: `SPARSIFIERS`, `QUANTISERS`, `POSITION_CODERS` and `ENTRY_CODERS`. A `Contract` names one part of
each; `fedstein.testing.coding` checks a part from outside.
"""

from fedstein.coding.budget import Plan, letter_bits, parse_budget, plan
from fedstein.coding.channel import Link, Upload, receive, receive_plain, send, send_plain
from fedstein.coding.contract import Contract
from fedstein.coding.entries import ENTRY_CODERS, EntryCoder
from fedstein.coding.fitting import encode
from fedstein.coding.frame import decode
from fedstein.coding.positions import POSITION_CODERS, PositionCoder
from fedstein.coding.quantisers import QUANTISERS, Quantiser
from fedstein.coding.shared import Shared
from fedstein.coding.sharing import groups_of, valid_sharings
from fedstein.coding.sparse import Sparse
from fedstein.coding.sparsifiers import SPARSIFIERS, Sparsifier

__all__ = [
    "ENTRY_CODERS",
    "POSITION_CODERS",
    "QUANTISERS",
    "SPARSIFIERS",
    "Contract",
    "EntryCoder",
    "Link",
    "Plan",
    "PositionCoder",
    "Quantiser",
    "Shared",
    "Sparse",
    "Sparsifier",
    "Upload",
    "decode",
    "encode",
    "groups_of",
    "letter_bits",
    "parse_budget",
    "plan",
    "receive",
    "receive_plain",
    "send",
    "send_plain",
    "valid_sharings",
]
