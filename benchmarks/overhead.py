"""How much of a training run is not gradient work: metrics, bookkeeping, the run folder.

The default run on Fashion-MNIST, recorded as `fedstein train` records it. Work inside visits counts as
gradient work, everything else does not.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch

from fedstein.methods import Visit
from fedstein.runs.recorder import Recorder
from fedstein.runs.verbs import fit_config
from fedstein.settings import Config, make_config


def measure(config: Config) -> None:
    spent = 0.0

    class Timed(type(config.method)):  # type: ignore[misc]
        def visit(self, visit: Visit) -> torch.Tensor:
            nonlocal spent
            began = time.perf_counter()
            difference: torch.Tensor = super().visit(visit)
            spent += time.perf_counter() - began
            return difference

    with tempfile.TemporaryDirectory() as folder:
        timed = config.model_copy(update={"method": Timed(**config.method.model_dump())})
        with Recorder.create(Path(folder) / "run", config) as run:
            trained = fit_config(timed, watchers=[run], note=run.note)
    other = trained.seconds - spent
    print(
        f"{config.method.particles} particles: {config.rounds} rounds in {trained.seconds:.1f} s, "
        f"{config.rounds / trained.seconds:.1f} rounds a second; not gradient work: "
        f"{other / trained.seconds:.1%} (metrics every {config.evaluation.every} rounds)"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    for particles in (1, 10, 40):
        measure(make_config({"rounds": options.rounds, "method": {"particles": particles}}))
