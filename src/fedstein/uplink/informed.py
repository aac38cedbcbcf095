r"""Positions below :math:`\log_2 \binom dk`: coded with what both ends know already.

Both ends have the particles that were downloaded, and where they started. Entries that have moved far are likelier
to move again. So entries are sorted into classes by how far they have moved, half an octave each, and each class
has a rate of its own; the number of kept entries in each class is sent.

Distances are added up as whole numbers: classes must be the same at both ends, whatever the machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedstein.errors import PayloadError
from fedstein.uplink.positions import Positions, Range
from fedstein.uplink.rangecoder import Decoder, Encoder, uniform

__all__ = ["Known", "read_informed", "what_both_know", "write_informed"]

_RANGE = Range()


@dataclass(frozen=True)
class Known:
    """For one group: entries in the order of their class, and where each class ends."""

    order: NDArray[np.int64]
    ends: list[int]


def what_both_know(particles: NDArray[np.float32], start: NDArray[np.float32], groups: int) -> list[Known]:
    """The classes of each group, from the downloaded particles and the first ones."""
    # The difference of two float32 is the same everywhere (IEEE 754), and so is its product with a power of two.
    steps = (np.abs(particles - start).astype(np.float64) * 2.0**30).clip(max=2.0**50).astype(np.int64)
    found = []
    for moved in steps.reshape(groups, -1, steps.shape[1]).sum(1):
        mantissa, exponent = np.frexp(moved.astype(np.float64))
        half_octave = np.where(moved > 0, 2 * exponent + (mantissa >= 0.75), 0)
        label = (255 - half_octave.clip(0, 255)).astype(np.uint8)  # far movers first
        order = np.argsort(label, kind="stable")
        counts = np.bincount(label, minlength=256)
        found.append(Known(order, np.cumsum(counts[counts > 0]).tolist()))
    return found


def write_informed(encoder: Encoder, positions: Positions, known: list[Known]) -> None:
    """Append (groups, k) positions, given what the reader knows too."""
    for row, group in zip(positions, known, strict=True):
        place = np.empty(len(group.order), np.int64)
        place[group.order] = np.arange(len(group.order))
        ranks = np.sort(place[row])
        cuts = np.searchsorted(ranks, [0, *group.ends]).tolist()
        start, left = 0, len(row)
        for index, end in enumerate(group.ends):
            inside = ranks[cuts[index] : cuts[index + 1]] - start
            if end < len(place):
                encoder.write(np.array([len(inside)], np.int32), uniform(_room(left, end - start)))
            if len(inside):
                _RANGE.write(encoder, inside[None], end - start)
            start, left = end, left - len(inside)


def read_informed(decoder: Decoder, kept: int, known: list[Known]) -> Positions:
    """The positions again."""
    found = np.empty((len(known), kept), np.int64)
    for row, group in zip(found, known, strict=True):
        start, left, ranks = 0, kept, [np.zeros(0, np.int64)]
        for end in group.ends:
            count = left
            if end < len(group.order):
                count = int(decoder.read(1, uniform(_room(left, end - start)))[0])
            if count > min(left, end - start):
                raise PayloadError("The frame has more kept entries in a class than there are.")
            if count:
                ranks.append(_RANGE.read(decoder, 1, count, end - start)[0] + start)
            start, left = end, left - count
        row[:] = np.sort(group.order[np.concatenate(ranks)])
    return found


def _room(left: int, size: int) -> int:
    """How many counts are possible; the range coder wants at least two."""
    return max(min(left, size) + 1, 2)
