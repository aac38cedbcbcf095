"""Coverage-guided fuzzing of the frame decoder with atheris: `make fuzz`.

The first byte picks a contract, and whether the check is forged (as a malicious sender would), so that the fuzzer
also reaches what lies behind it. Whatever comes, the decoder gives a PayloadError or a frame that keeps the contract.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["fedstein.coding"]):
    from fedstein.coding import SPARSIFIERS, Contract, Shared, encode, frame

import numpy as np

from fedstein.coding.quantisers import largest_level
from fedstein.errors import PayloadError


class RandomK:
    """A sparsifier that sends no positions: both ends draw them."""

    sends_positions = False

    def ranked(self, update, groups, most, shared):
        return self._order(groups, update.shape[1], shared)[:, :most]

    def known(self, groups, kept, dim, shared):
        return np.sort(self._order(groups, dim, shared)[:, :kept], axis=1)

    def _order(self, groups, dim, shared):
        random = shared.random("sparsifier")
        return np.stack([random.permutation(dim) for _ in range(groups)])


SPARSIFIERS._own["random-k"] = RandomK()
CONTRACTS = [
    Contract(1010, 40, 1, 5, 4000),
    Contract(300, 4, 4, 3, 4000, positions="golomb"),
    Contract(300, 4, 2, 9, 4000, a_max=0.5),
    Contract(20, 1, 1, 16, 4000, positions="range"),
    Contract(64, 2, 1, 5, 4000, positions="enumerative"),
    Contract(300, 6, 2, 5, 4000, positions="informed"),
    Contract(300, 6, 3, 12, 4000, entries="adaptive"),
    Contract(1010, 5, 1, 5, 4000, positions="informed", entries="adaptive"),
    Contract(1, 1, 1, 2, 4000),
    Contract(300, 6, 2, 5, 4000, positions="informed", common=True),
    Contract(1010, 40, 1, 3, 4000, entries="adaptive", common=True),
    Contract(300, 6, 2, 5, 4000, sparsifier="random-k", common=True),
    Contract(300, 6, 3, 5, 4000, sparsifier="random-k", entries="adaptive"),
]
random = np.random.default_rng(0)
SHARED = [
    Shared(
        random.standard_cauchy((c.particles, c.dim)).astype(np.float32),
        np.zeros((c.particles, c.dim), np.float32),
    )
    for c in CONTRACTS
]
true_check = frame._check


def one_input(content: bytes) -> None:
    if not content:
        return
    which = content[0] % (2 * len(CONTRACTS))
    contract, shared, data = CONTRACTS[which // 2], SHARED[which // 2], content[1:]
    frame._check = (lambda sparse, others: data[1:4]) if which % 2 else true_check
    try:
        sparse = frame.decode(data, contract, shared)
    except PayloadError:
        return
    assert 8 * len(data) <= contract.budget_bits
    assert sparse.positions.shape == (contract.groups, sparse.kept)
    assert sparse.levels.shape == (contract.particles // sparse.copies, sparse.kept)
    if sparse.kept:
        assert sparse.positions.min() >= 0
        assert sparse.positions.max() < contract.dim
        assert (np.diff(sparse.positions, axis=1) > 0).all()
        assert np.abs(sparse.levels).max() <= largest_level(contract.bits_per_entry)
    assert np.isfinite(sparse.dense()).all()


def write_seeds(folder: Path) -> None:
    """True frames of every contract, so that the fuzzer starts behind the header."""
    for index, (contract, shared) in enumerate(zip(CONTRACTS, SHARED, strict=True)):
        for scale in (0.0, 1.0, 2.0):
            update = (scale * random.normal(size=(contract.particles, contract.dim))).astype(np.float32)
            update[1:] = update[:1] if scale == 2.0 else update[1:]  # particles that are alike have common values
            true_frame, _, _ = encode(update, contract, random, shared)
            for forged in (0, 1):
                (folder / f"{index}-{scale:g}-{forged}").write_bytes(bytes([2 * index + forged]) + true_frame)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as corpus:
        write_seeds(Path(corpus))
        atheris.Setup([*sys.argv, corpus], one_input)
        atheris.Fuzz()
