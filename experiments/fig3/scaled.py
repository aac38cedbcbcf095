"""Validation NLL, ECE and accuracy of runs with temperature scaling, for choosing a setting by them.

    python experiments/fig3/scaled.py runs/search-scaled

The scale is fitted on one half of the validation examples and judged on the other, both ways round.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import fmean

import torch

from fedstein.build import load_run
from fedstein.metrics import accuracy, ece, fit_scaling, nll, scaled
from fedstein.problem import predict

print("run,accuracy,nll,ece,scaled_nll,scaled_ece")
for run in sorted(Path(sys.argv[1]).glob("*/seed-*/config.toml")):
    _, problem, particles = load_run(run.parent, "validation")
    assert problem.test is not None
    found, labels = predict(problem.model, particles, problem.test.x).probabilities, problem.test.y
    halves = torch.arange(len(labels)) % 2 == 0
    scores = []
    for fitted, judged in ((halves, ~halves), (~halves, halves)):
        better = scaled(found[judged], fit_scaling(found[fitted], labels[fitted]))
        scores.append((nll(better, labels[judged]), ece(better, labels[judged])))
    plain = (accuracy(found, labels), nll(found, labels), ece(found, labels))
    name = f'"{run.parent.parent.name}"'
    print(name, *(f"{number:.4f}" for number in (*plain, *map(fmean, zip(*scores, strict=True)))), sep=",", flush=True)
