"""The mission: learn within a thin uplink, know what is not known, forget whoever asks, and show the evidence.

    python examples/mission.py [FOLDER]       about a minute on two cores

1. Ten agents learn Fashion-MNIST; every upload has at most a fifth of a bit for each parameter. All other settings are
   those that fedstein chooses (`fedstein train --explain --set uplink.budget=0.2d`).
2. The letter's unlearning study at one bit a parameter: ten agents with two classes each, the last layer is Bayesian.
   Agents 2 and 3, who alone hold the labels 2 and 9, ask to be forgotten.
3. The audit trains three models that never knew them, and compares.
"""

import sys
from datetime import datetime
from pathlib import Path
from statistics import fmean

import fedstein as fs

folder = Path(sys.argv[1] if len(sys.argv) > 1 else f"runs/mission-{datetime.now():%Y%m%d-%H%M%S}")

print("1. Training within a fifth of a bit a parameter: 500 rounds, some 20 seconds.", flush=True)
settings = fs.config(None, "uplink.budget=0.2d", "rounds=500", "evaluation.every=50")
thin = fs.train_config(settings, folder / "thin")
page = thin.report()

print("2. The letter's unlearning study, then agents 2 and 3 leave: 720 rounds, some 15 seconds.", flush=True)
smaller = ("method.particles=10", "rounds=600", "pretrain.rounds=100", "posterior.from=window")
before = fs.train_config(fs.config(None, *smaller, preset="unlearning"), folder / "letter")
by_class, bill = before.metrics["class_accuracy"], before.totals  # its model is purged when the agents leave
after = before.forget([2, 3], out=folder / "without")

print("3. The audit: three models that never knew them, some 20 seconds.", flush=True)
audit = after.audit()

COLUMNS = "{:<38}{:>9}{:>8}{:>8}{:>16}{:>10}{:>10}"
print("\n" + COLUMNS.format("", "accuracy", "ECE", "NLL", "largest upload", "bits up", "bits down"))
for name, metrics, totals in (
    (f"1. whole network, R_u = {settings.uplink.budget}", thin.metrics, thin.totals),
    ("2. last layer, R_u = 1.0d", before.metrics, bill),
    ("   the same without agents 2 and 3", after.metrics, after.totals),
):
    up, down = f"{totals.upload_bits / 1e6:,.2f} M", f"{totals.download_bits / 1e6:,.0f} M"
    numbers = [f"{metrics[key]:.3f}" for key in ("accuracy", "ece", "nll")]
    print(COLUMNS.format(name, *numbers, f"{totals.max_upload_bits:,} bits", up, down))

never_knew = fmean(model["test"]["accuracy"] for model in audit.table["metrics"]["retrained"])
forgotten = after.metrics["forgotten_label_accuracy"]
passed = sum(check.status == "pass" for check in audit.checks)
print(f"\nlabels 2 and 9: {fmean(by_class[label] for label in (2, 9)):.3f} correct before, {forgotten:.3f} after")
print(f"all labels:     {after.metrics['accuracy']:.3f} after; models that never knew the agents have {never_knew:.3f}")
print(f"audit:          {audit.verdict}, {passed} of {len(audit.checks)} checks passed")
for check in audit.checks:
    if check.status != "pass":
        print(f"                {check.status}: {check.name}: {check.note}")
print(f"report:         {page}\naudit's page:   {folder / 'without' / 'audit' / 'audit.html'}")
