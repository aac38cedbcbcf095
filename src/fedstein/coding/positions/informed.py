r"""Positions below :math:`\log_2 \binom dk`: coded with what both ends know already.

Both ends have the particles that were downloaded, and where they started. Entries that have moved far are likelier
to move again. So entries are sorted into classes by how far they have moved, half an octave each, and each class
has a rate of its own; the number of kept entries in each class is sent.

Distances are added up as whole numbers: classes must be the same at both ends, whatever the machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from fedstein.coding.positions.base import PositionCoder, Positions
from fedstein.coding.positions.range import Range
from fedstein.coding.rangecoder import Decoder, Encoder, uniform
from fedstein.coding.shared import Shared
from fedstein.errors import PayloadError, UserError

__all__ = ["Informed", "Known", "what_both_know"]

_RANGE = Range()
_MOST_CLASSES = 128  # a distance is a whole number below 2^63, in half octaves, or none


@dataclass(frozen=True)
class Known:
    """For one group: entries in the order of their class, and where each class ends."""

    order: NDArray[np.int64]
    ends: list[int]


def what_both_know(particles: NDArray[np.float32], start: NDArray[np.float32], groups: int) -> list[Known]:
    """The classes of each group.

    Args:
        particles: (N_p, d) as downloaded.
        start: (N_p, d) before the first round.
        groups: of particles, which are neighbours in order.

    Returns:
        For each group, the same at both ends.
    """
    classes = []
    members, dim = len(particles) // groups, particles.shape[1]
    few = max(1, (1 << 16) // dim)  # rows at once, which stay in the cache
    for now, then in zip(particles.reshape(groups, members, dim), start.reshape(groups, members, dim), strict=True):
        moved = np.zeros(dim, np.int64)
        for row in range(0, members, few):
            moved += _steps(now[row : row + few], then[row : row + few]).sum(0)
        mantissa, exponent = np.frexp(moved.astype(np.float64))
        half_octave = np.where(moved > 0, 2 * exponent + (mantissa >= 0.75), 0)
        label = (255 - half_octave.clip(0, 255)).astype(np.uint8)  # far movers first
        order = np.argsort(label, kind="stable")
        counts = np.bincount(label, minlength=256)
        classes.append(Known(order, np.cumsum(counts[counts > 0]).tolist()))
    return classes


def _steps(now: NDArray[np.float32], start: NDArray[np.float32]) -> NDArray[np.int64]:
    """How far each entry of some particles has moved, as a whole number."""
    # The difference of two float32 is the same everywhere (IEEE 754), and so is its product with a power of two.
    far: NDArray[np.float64] = np.abs(now - start).astype(np.float64)
    far *= 2.0**30
    np.minimum(far, 2.0**50, out=far)
    return far.astype(np.int64)


class Informed(PositionCoder):
    """Range coding in classes of entries that have moved alike."""

    streams = True
    certain = False
    needs_first = True

    def encode(self, positions: Positions, dim: int, shared: Shared | None) -> bytes:
        encoder = Encoder()
        self.write(encoder, positions, dim, shared)
        return encoder.finish()

    def decode(self, content: bytes, groups: int, kept: int, dim: int, shared: Shared | None) -> Positions:
        return self.read(Decoder(content), groups, kept, dim, shared)

    def write(self, encoder: Encoder, positions: Positions, dim: int, shared: Shared | None) -> None:
        for row, group in zip(positions, _classes(shared, len(positions), dim), strict=True):
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

    def read(self, decoder: Decoder, groups: int, kept: int, dim: int, shared: Shared | None) -> Positions:
        positions = np.empty((groups, kept), np.int64)
        for row, group in zip(positions, _classes(shared, groups, dim), strict=True):
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
        return positions

    def most_bits(self, groups: int, kept: int, dim: int) -> int:
        # Rates of the classes' own cost no more than one rate for all (entropy is concave); the counts come on top.
        counts = groups * min(_MOST_CLASSES, dim) * (math.log2(kept + 1) + 0.1)
        return _RANGE.most_bits(groups, kept, dim) + math.ceil(counts)


# A search codes the same upload several times: its classes are made once, and go when the upload is done.
_made: WeakKeyDictionary[Shared, dict[int, list[Known]]] = WeakKeyDictionary()


def _classes(shared: Shared | None, groups: int, dim: int) -> list[Known]:
    if shared is None or shared.first is None:
        raise UserError(
            f"The 'shared' must have the first particles for informed positions. Got {shared and 'none in it'}. "
            "Give Shared(particles, first)."
        )
    if shared.particles.shape[1] != dim:
        raise UserError(f"The 'shared' must have particles of {dim} entries. Got {shared.particles.shape[1]}.")
    of_upload = _made.setdefault(shared, {})
    if groups not in of_upload:
        of_upload[groups] = what_both_know(shared.particles, shared.first, groups)
    return of_upload[groups]


def _room(left: int, size: int) -> int:
    """How many counts are possible; the range coder wants at least two."""
    return max(min(left, size) + 1, 2)
