"""The whole story in Python: train under a bit budget, go on, forget an agent, audit it.

python examples/story.py [FOLDER]       about half a minute on two cores
"""

import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

import fedstein as fs
from fedstein.data import iid, load_digits

folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
digits = load_digits()  # 1,437 + 360 images of 8 x 8
parts = iid(digits.train.y, 5, None, torch.Generator().manual_seed(0))
agents = [(digits.train.x[part], digits.train.y[part]) for part in parts]
test = (digits.test.x, digits.test.y)

# Logistic regression with linear factors: what an agent has contributed can be taken back.
module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
method = fs.DSVGD(
    particles=5, factor="linear", likelihood="mean", temperature=0.01, stiffness=20.0, local_steps=30, step_size=0.3
)
budget = fs.Uplink("8.0d", entries="adaptive", common=True)  # at most 8 bits a parameter, everything counted
run = fs.train(
    module, agents, method=method, uplink=budget, rounds=80, test=test, escrow=True, threads=1, out=folder / "run"
)
print(f"trained:  {run.rounds} rounds, accuracy {run.metrics['accuracy']:.3f}, ECE {run.metrics['ece']:.3f}")
print(f"uplink:   the largest frame has {max(bill.bits for bill in run.bills):,} of {run.bills[0].budget_bits:,} bits")

run = fs.open(folder / "run").resume(rounds=120)
print(f"resumed:  {run.rounds} rounds, accuracy {run.metrics['accuracy']:.3f}")
noise = torch.rand(test[0].shape, generator=torch.Generator().manual_seed(1))
sure, unsure = run.predict(test[0]), run.predict(noise)
print(f"predicts: epistemic {sure.epistemic.mean():.4f} on digits, {unsure.epistemic.mean():.4f} on noise")

after = run.forget([3], repair=40, out=folder / "after")
print(f"forgot:   agent 3 in {after.rounds - run.rounds} rounds, accuracy {after.metrics['accuracy']:.3f}")
audit = after.audit()
passed = sum(check.status == "pass" for check in audit.checks)
print(f"audit:    {audit.verdict}, {passed} of {len(audit.checks)} checks passed")
compared = fs.compare([after, folder / "after" / "audit" / "retrained-0"], folder / "compared.html")
print(f"pages:    {after.report().name}, audit.html, {compared.page.name}")
