"""Five agents train a classifier without sharing their data, then say how sure they are."""

import torch
from torch import nn

import fedstein
from fedstein.data import iid, load_digits

digits = load_digits()  # 1,437 + 360 images of 8 x 8, shipped with scikit-learn
parts = iid(digits.train.y, 5, None, torch.Generator().manual_seed(0))
agents = [(digits.train.x[part], digits.train.y[part]) for part in parts]

module = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
method = fedstein.DSVGD(particles=10)
run = fedstein.train(module, agents, method=method, rounds=100, test=(digits.test.x, digits.test.y))

print({name: round(run.metrics[name], 3) for name in ("accuracy", "ece", "nll")})
noise = torch.rand(digits.test.x.shape, generator=torch.Generator().manual_seed(1))
for name, x in (("digits", digits.test.x), ("noise", noise)):
    prediction = run.predict(x)
    print(f"{name}: confidence {prediction.confidence.mean():.2f}, epistemic {prediction.epistemic.mean():.3f}")
