"""The uplink's speed and rate, beside one SVGD step and beside what people send today.

python benchmarks/uplink.py            # d = 79,510, N_p = 10, R_u = d
python benchmarks/uplink.py --grow     # up to d = 11 million (ResNet-18)
"""

from __future__ import annotations

import argparse
import gzip
import sys
import time
import tracemalloc

import numpy as np
from svgd_step import interleave, ours, print_table

from fedstein.coding import POSITION_CODERS, Contract, Shared, decode, encode
from fedstein.coding.positions import bound_bits

CODERS = {name: coder for name, coder in POSITION_CODERS.items() if not coder.needs_first}


def update(particles: int, dim: int) -> np.ndarray:
    """Heavy-tailed like a real one: the scale of an entry is log-normal and shared by the particles."""
    random = np.random.default_rng(0)
    scale = np.exp(1.2 * random.normal(size=dim)).astype(np.float32)
    return scale * random.normal(size=(particles, dim)).astype(np.float32)


def speed() -> None:
    dim, particles = 79_510, 10
    difference, now = update(particles, dim), update(particles, dim)[:, ::-1].copy()
    shared = Shared(now, np.zeros_like(now))
    steps = {"one SVGD step, batch 100": ours(particles, 100)}
    for positions, entries in (("auto", "fixed"), ("golomb", "fixed"), ("auto", "adaptive"), ("informed", "adaptive")):
        contract = Contract(dim, particles, 1, 5, dim, positions=positions, entries=entries)
        frame, _, _ = encode(difference, contract, np.random.default_rng(0), shared)
        name = f"{positions} positions, {entries} entries"
        steps[f"encode, {name}"] = lambda c=contract: encode(difference, c, np.random.default_rng(0), shared)  # type: ignore[misc]
        steps[f"decode, {name}"] = lambda c=contract, f=frame: decode(f, c, shared)  # type: ignore[misc]
    seconds = interleave(steps, 10.0)
    base = seconds["one SVGD step, batch 100"]
    print_table(
        ["d = 79,510, N_p = 10, R_u = d", "ms", "of an SVGD step"],
        {name: [f"{value * 1e3:.2f}", f"{value / base:.2f}"] for name, value in seconds.items()},
    )


def coders() -> None:
    rows = {}
    random = np.random.default_rng(0)
    for dim, kept in ((1010, 4), (1010, 100), (79_510, 1000), (79_510, 1386), (79_510, 20_000), (11_000_000, 100_000)):
        positions = np.sort(random.choice(dim, kept, replace=False))[None]
        bound, cells = bound_bits(dim, kept), []
        for name, coder in CODERS.items():
            if name == "enumerative" and kept > 100:
                cells.append("-")
                continue
            began = time.perf_counter()
            content = coder.encode(positions, dim, None)
            cells.append(f"+{8 * len(content) / bound - 1:.2%}, {(time.perf_counter() - began) * 1e3:.2f} ms")
        rows[f"{kept:,} of {dim:,}"] = [f"{bound:,.0f}", *cells]
    print_table(["positions, one group", "log2 C bits", *CODERS], rows)


def today() -> None:
    """How many entries of each of 10 particles fit into R_u = d = 79,510 bits."""
    dim, particles = 79_510, 10
    budget = dim // 8
    difference = update(particles, dim)
    best = {}
    for positions, entries in (("golomb", "fixed"), ("auto", "fixed"), ("auto", "adaptive")):
        contract = Contract(dim, particles, 1, 5, dim, positions=positions, entries=entries)
        best[f"fedstein, {positions} positions, {entries} entries of 5 bits"] = encode(
            difference, contract, np.random.default_rng(0)
        )[1].kept
    weights = np.abs(difference).sum(0)
    order = np.argsort(-weights)
    kept = 0
    while True:  # gzip of the sparse array itself
        sparse = np.zeros_like(difference)
        sparse[:, order[: kept + 25]] = difference[:, order[: kept + 25]]
        if len(gzip.compress(sparse.tobytes())) > budget:
            break
        kept += 25
    best["gzip of the sparse float32 array"] = kept
    best["int8 values and 32-bit indices, shared"] = budget // (4 + particles)
    best["int8 values and 32-bit indices, for each particle"] = budget // (5 * particles)
    best["float32 values and int64 indices, shared"] = budget // (8 + 4 * particles)
    best["float32 values and int64 indices, for each particle (torch.topk)"] = budget // (12 * particles)
    base = best["fedstein, golomb positions, fixed entries of 5 bits"]
    print_table(
        ["what fits into 79,510 bits", "entries a particle", "of the letter's coding"],
        {name: [f"{value:,}", f"{value / base:.2f}"] for name, value in best.items()},
    )


def grow() -> None:
    rows = {}
    for dim in (10_000, 79_510, 1_000_000, 11_000_000):
        particles = 2
        difference = update(particles, dim)
        contract = Contract(dim, particles, 1, 5, dim)
        tracemalloc.start()  # numpy tells it of every array
        decode(encode(difference, contract, np.random.default_rng(0))[0], contract)
        rise = tracemalloc.get_traced_memory()[1] / difference.nbytes
        tracemalloc.stop()
        began = time.perf_counter()
        frame, _, _ = encode(difference, contract, np.random.default_rng(0))
        middle = time.perf_counter()
        decode(frame, contract)
        end = time.perf_counter()
        rows[f"{dim:,}"] = [
            f"{(middle - began) * 1e3:.1f}",
            f"{(end - middle) * 1e3:.1f}",
            f"{(end - began) / dim / particles * 1e9:.1f}",
            f"{rise:.1f}",
        ]
    print_table(
        ["d (2 particles, R_u = d)", "encode, ms", "decode, ms", "ns an entry", "extra memory / particles"], rows
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grow", action="store_true")
    if parser.parse_args().grow:
        grow()
    else:
        speed()
        print()
        coders()
        print()
        today()
    sys.exit(0)
