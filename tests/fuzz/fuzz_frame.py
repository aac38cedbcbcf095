"""Coverage-guided fuzzing of the frame decoder with atheris: `make fuzz`.

The first byte picks a contract, and whether the check is forged (as a malicious sender would), so that the fuzzer
also reaches what lies behind it. Whatever comes, the decoder gives a PayloadError or a frame that keeps the contract.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["fedstein.uplink"]):
    from fedstein.uplink import budget, entries, frame, informed, positions

import numpy as np

from fedstein.errors import PayloadError
from fedstein.uplink import Contract, what_both_know
from fedstein.uplink.quantize import largest_level

assert all((budget, entries, informed, positions))  # imported above so that they are instrumented

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
]
random = np.random.default_rng(0)
KNOWN = [
    what_both_know(
        random.standard_cauchy((c.particles, c.dim)).astype(np.float32),
        np.zeros((c.particles, c.dim), np.float32),
        c.groups,
    )
    for c in CONTRACTS
]
true_check = frame._check


def one_input(content: bytes) -> None:
    if not content:
        return
    which = content[0] % (2 * len(CONTRACTS))
    contract, known, data = CONTRACTS[which // 2], KNOWN[which // 2], content[1:]
    frame._check = (lambda sparse, others: data[1:4]) if which % 2 else true_check
    try:
        found = frame.decode(data, contract, known)
    except PayloadError:
        return
    assert 8 * len(data) <= contract.budget_bits
    assert found.positions.shape == (contract.groups, found.kept)
    assert found.levels.shape == (contract.particles // found.copies, found.kept)
    if found.kept:
        assert found.positions.min() >= 0
        assert found.positions.max() < contract.dim
        assert (np.diff(found.positions, axis=1) > 0).all()
        assert np.abs(found.levels).max() <= largest_level(contract.bits_per_entry)
    assert np.isfinite(found.dense()).all()


def write_seeds(folder: Path) -> None:
    """True frames of every contract, so that the fuzzer starts behind the header."""
    for index, (contract, known) in enumerate(zip(CONTRACTS, KNOWN, strict=True)):
        for scale in (0.0, 1.0, 2.0):
            update = (scale * random.normal(size=(contract.particles, contract.dim))).astype(np.float32)
            update[1:] = update[:1] if scale == 2.0 else update[1:]  # particles that are alike have common values
            true_frame, _, _ = frame.encode(update, contract, random, known)
            for forged in (0, 1):
                (folder / f"{index}-{scale:g}-{forged}").write_bytes(bytes([2 * index + forged]) + true_frame)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as corpus:
        write_seeds(Path(corpus))
        atheris.Setup([*sys.argv, corpus], one_input)
        atheris.Fuzz()
