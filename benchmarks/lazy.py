"""A data set of 100,000 images that is read when it is wanted: what memory a training takes, and what reading costs.

python benchmarks/lazy.py [IMAGES] [SIDE]
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from torch import nn
from torch.utils.data import Dataset

import fedstein


class Stored(Dataset):
    """Part of a file of raw images, item by item."""

    def __init__(self, path, begin, count, side):
        self.path, self.begin, self.count, self.shape = path, begin, count, (3, side, side)

    def __len__(self):
        return self.count

    def __getitem__(self, place):
        size = int(np.prod(self.shape))
        pixels = np.fromfile(self.path, np.uint8, size, offset=(self.begin + place) * size)
        return pixels.reshape(self.shape), (self.begin + place) % 10


def main():
    count, side = (int(sys.argv[1]) if len(sys.argv) > 1 else 100_000), (int(sys.argv[2]) if len(sys.argv) > 2 else 32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    with tempfile.TemporaryDirectory() as folder:
        path, draw = Path(folder) / "images", np.random.default_rng(0)
        with path.open("wb") as file:
            for _ in range(count // 1000):
                file.write(draw.integers(0, 256, (1000, 3, side, side), dtype=np.uint8).tobytes())
        agents = [Stored(path, k * count // 10, count // 10, side) for k in range(10)]
        module = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 10),
        )  # fmt: skip
        method = fedstein.DSVGD(particles=5, local_steps=5)
        took = []
        for rounds in (1, 61):
            began = time.process_time()
            fedstein.train(module, agents, method=method, rounds=rounds, progress=False, threads=1)
            took.append(time.process_time() - began)
        steps = 60 * method.local_steps
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    whole = count * 3 * side * side * 4 / 2**20
    print(f"{count:,} images of 3 x {side} x {side}: {whole:,.0f} MiB as float32")
    print(f"before: {before:,.0f} MiB; at most, in training: {peak:,.0f} MiB")
    print(f"going through all of them once: {1e6 * (took[0] / count):.0f} us of CPU an image")
    each = 1e3 * (took[1] - took[0]) / steps
    print(f"a step of five particles on 100 images, reading them included: {each:.1f} ms of CPU")


if __name__ == "__main__":
    main()
