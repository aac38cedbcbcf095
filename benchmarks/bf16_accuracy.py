"""What bf16 products cost in accuracy: the default run twice, float32 and bf16, on the validation split.

On a CPU without units for bf16 this is an emulation, much slower but with the same rounding.
"""

from __future__ import annotations

import argparse

from fedstein.models import dense
from fedstein.runs.verbs import fit_config
from fedstein.settings import make_config

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    dense.has_bf16_units = lambda device: True
    for precision in ("float32", "bf16"):
        config = make_config(
            {
                "rounds": options.rounds,
                "data": {"validation": 10_000},
                "evaluation": {"split": "validation"},
                "model": {"precision": precision},
                "posterior": {"from": "last"},
            }
        )
        metrics = fit_config(config).metrics
        print(f"{precision}: accuracy {metrics['accuracy']:.4f}, ECE {metrics['ece']:.4f}, NLL {metrics['nll']:.4f}")
