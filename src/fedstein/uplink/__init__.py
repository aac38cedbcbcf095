"""The uplink: a hard bit budget in, real bytes out. Pure functions on numpy arrays, usable alone."""

from fedstein.uplink.budget import Contract, Plan, letter_bits, parse_budget, plan
from fedstein.uplink.channel import Uplink, Upload, receive, receive_plain, send, send_plain
from fedstein.uplink.frame import Sparse, decode, encode
from fedstein.uplink.informed import Known, what_both_know
from fedstein.uplink.sparsify import groups_of, valid_sharings

__all__ = [
    "Contract",
    "Known",
    "Plan",
    "Sparse",
    "Uplink",
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
    "what_both_know",
]
