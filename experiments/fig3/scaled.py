"""Validation NLL, ECE and accuracy of runs with temperature scaling, for choosing a setting by them.

    python experiments/fig3/scaled.py runs/search-scaled

The scale is fitted on one half of the validation examples and judged on the other, both ways round.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import fmean

import torch

from fedstein.metrics import accuracy, ece, fit_scaling, nll, scaled
from fedstein.runs.evaluation import load_run
from fedstein.runs.judge import predict

print("run,accuracy,nll,ece,scaled_nll,scaled_ece")
for run in sorted(Path(sys.argv[1]).glob("*/seed-*/config.toml")):
    loaded = load_run(run.parent, "validation")
    held_out = loaded.problem.judge.test
    assert held_out is not None
    plain, labels = predict(loaded.problem.task.model, loaded.particles, held_out.x).probabilities, held_out.y
    halves = torch.arange(len(labels)) % 2 == 0
    scores = []
    for fitted, judged in ((halves, ~halves), (~halves, halves)):
        better = scaled(plain[judged], fit_scaling(plain[fitted], labels[fitted]))
        scores.append((nll(better, labels[judged]), ece(better, labels[judged])))
    unscaled = (accuracy(plain, labels), nll(plain, labels), ece(plain, labels))
    name = f'"{run.parent.parent.name}"'
    print(
        name, *(f"{number:.4f}" for number in (*unscaled, *map(fmean, zip(*scores, strict=True)))), sep=",", flush=True
    )
