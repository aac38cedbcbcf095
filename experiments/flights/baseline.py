"""What needs no network, on the test set: an aeroplane arrives as late as it left, or so many minutes before that.

python experiments/flights/baseline.py
"""

import math

import torch

from fedstein.data import DataConfig, who_has_what
from fedstein.data.sources.flights import DELAY

held = who_has_what(DataConfig(name="flights", agents=16), seed=0)


def gained(examples):
    """Minutes that a flight was later at its end than at its start."""
    return examples.y.double() - (examples.x[:, 0].double() * DELAY[1] + DELAY[0])


learnt = torch.cat([gained(agent) for agent in held.agents])  # pooled: nobody could do this
test, mean, std = gained(held.test), learnt.mean(), learnt.std()
print("| | RMSE | MAE | NLL |")
print("|---|---|---|---|")
for name, shift in (("as late as it left", 0.0), (f"that, and {mean:.1f} minutes", mean)):
    error = test - shift
    spread = (learnt - shift).square().mean().sqrt()
    nll = (0.5 * (error / spread).square() + spread.log() + 0.5 * math.log(2 * math.pi)).mean()
    print(f"| {name}, one Gaussian | {error.square().mean().sqrt():.2f} | {error.abs().mean():.2f} | {nll:.3f} |")
