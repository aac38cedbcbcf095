"""The whole way on one data set, over seeds: train within a bit budget, report, forget an agent, audit.

    python experiments/whole_way.py experiments/watch/config.toml --forget 3 --seeds 3 --out runs/watch --write

CONFIG's folder is worked in, so that a network of one's own (`model.module = "nets:make_cnn"`) may lie beside it. Every
seed has a folder in DIR; what is done there already is not done again, so a study that was stopped goes on. All numbers
go to DIR/numbers.json; with --write also to numbers.json beside CONFIG, and as tables into README.md there, between the
lines <!-- numbers --> and <!-- end of numbers -->.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import fedstein as fs

BEGIN, END = "<!-- numbers -->", "<!-- end of numbers -->"
WORDS = {"accuracy": "accuracy", "nll": "NLL", "ece": "ECE", "brier": "Brier", "rmse": "RMSE", "mae": "MAE",
         "crps": "CRPS", "epistemic": "epistemic", "coverage_50": "covered by 50 % intervals",
         "coverage_90": "covered by 90 % intervals", "coverage_95": "covered by 95 % intervals",
         "width_90": "width of 90 % intervals", "calibration_error": "calibration error"}  # fmt: skip
Record = dict[str, Any]


def go(config: fs.Config, forget: Sequence[int], out: Path, repair: int | None, tier: str) -> Record:
    """One seed, from the first round to the verdict; or what was done of it already."""
    whole, first = out / "whole.json", out / "trained.json"
    if whole.is_file():
        return read(whole)
    if not first.is_file():
        trained = fs.open(out / "run").resume() if (out / "run").is_dir() else fs.train_config(config, out / "run")
        if trained.interrupted:
            raise KeyboardInterrupt
        write(first, told(trained))
        trained.report()  # forgetting purges it with the model that it is about
    before = read(first)
    began = time.perf_counter()
    after = fs.open(out / "run").forget(forget, out=out / "after", repair=repair)
    if after.interrupted:
        raise KeyboardInterrupt
    forgot = told(after)
    after.report()
    audit = after.audit(tier)
    references = sorted((out / "after" / "audit").glob("retrained-*"))
    record = {
        "trained": before,
        "forgot": forgot | {"agents": list(forget), "rounds": after.rounds - before["rounds"]},
        "retrained": [told(fs.open(folder)) for folder in references],
        "audit": {key: audit.table[key] for key in ("verdict", "checks", "metrics", "cost", "divergence")},
        "seconds_from_forgetting_to_verdict": round(time.perf_counter() - began),
    }
    write(whole, record)
    return record


def told(run: fs.Run) -> Record:
    """What a run has to say of itself."""
    bills, result = run.bills, read(run.path / "result.json") if (run.path / "result.json").is_file() else {}
    return {
        "rounds": run.rounds,
        "particles": run.particles.shape[0],
        "parameters": run.particles.shape[1],
        "largest_upload_bits": max(bill.bits for bill in bills),
        "budget_bits": bills[-1].budget_bits,
        "upload_bits": run.totals.upload_bits,
        "seconds": round(result.get("seconds", 0.0), 1),
        "metrics": {key: value for key, value in run.metrics.items() if isinstance(value, int | float)},
    }


def read(path: Path) -> Record:
    value: Record = json.loads(path.read_text(encoding="utf-8"))
    return value


def write(path: Path, value: Record) -> None:
    """All of it or nothing: a study may be stopped at any time."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def tables(records: Sequence[Record]) -> str:
    """Markdown: what it cost, how good it is, and what the audit says."""
    return "\n\n".join([cost(records), quality(records), groups(records), verdicts(records)])


def cost(records: Sequence[Record]) -> str:
    trained = [record["trained"] for record in records]
    one, budgets = trained[0], [record["budget_bits"] for record in trained]
    plain = 32 * one["parameters"] * one["particles"]
    limit = "without a budget" if budgets[0] is None else (
        f"at most {budgets[0]:,} bits an upload (the largest had {max(r['largest_upload_bits'] for r in trained):,}; "
        f"plain float32 would have {plain:,})"
    )  # fmt: skip
    return (
        f"{len(records)} seed{'s' * (len(records) > 1)}; {one['particles']} particles of {one['parameters']:,} "
        f"parameters; {one['rounds']:,} rounds, {limit}. Minutes, of a seed: "
        f"{fmean(r['seconds'] for r in trained) / 60:.1f} for training, "
        f"{fmean(r['seconds_from_forgetting_to_verdict'] for r in records) / 60:.1f} for forgetting and the audit with "
        f"its {len(records[0]['retrained'])} retrained models."
    )


def quality(records: Sequence[Record]) -> str:
    """The test set."""
    names = [name for name in WORDS if name in records[0]["trained"]["metrics"]]
    lines = ["| test set | trained | after forgetting | retrained without |", "|---" * 4 + "|"]
    for name in names:
        cells = [
            spread(record["trained"]["metrics"][name] for record in records),
            spread(record["forgot"]["metrics"][name] for record in records),
            spread(fmean(run["metrics"][name] for run in record["retrained"]) for record in records),
        ]
        lines.append(f"| {WORDS[name]} | {' | '.join(cells)} |")
    share = [r["audit"]["cost"]["upload_bits"] / r["audit"]["cost"]["retraining_upload_bits"] for r in records]
    rounds = spread((record["forgot"]["rounds"] for record in records), 0)
    lines.append(f"| rounds | {records[0]['trained']['rounds']:,} | {rounds} | {records[0]['trained']['rounds']:,} |")
    lines.append(f"| bits sent, of retraining's | | {spread((100 * x for x in share), 1)} % | 100 % |")
    to = [fmean(one["mean"] for one in record["audit"]["divergence"]["kl"].values()) for record in records]
    apart = [fmean(one["mean"] for one in r["audit"]["divergence"]["kl_between_retrained"]) for r in records]
    lines.append(f"| KL from retrained models, nats | | {spread(to)} | {spread(apart)}, between two seeds |")
    return "\n".join(lines)


def groups(records: Sequence[Record]) -> str:
    """The data of those who left, and of those who stay."""
    metrics = [record["audit"]["metrics"] for record in records]
    lines = ["| the agents' own data | trained | after forgetting | retrained without |", "|---" * 4 + "|"]
    for group in ("forgotten", "retained"):
        for name in metrics[0]["audited"].get(group, {}):
            cells = [
                spread(one["before"][group][name] for one in metrics),
                spread(one["audited"][group][name] for one in metrics),
                spread(fmean(other[group][name] for other in one["retrained"]) for one in metrics),
            ]
            lines.append(f"| {group}: {WORDS.get(name, name)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def verdicts(records: Sequence[Record]) -> str:
    """Every line of the audit that did not pass in every seed, and how many did."""
    checks = [{check["name"]: check for check in record["audit"]["checks"]} for record in records]
    passed = [name for name in checks[0] if all(one[name]["status"] == "pass" for one in checks)]
    verdict = ", ".join(record["audit"]["verdict"] for record in records)
    lines = [f"The audit says {verdict}; {len(passed)} of {len(checks[0])} checks pass in every seed."]
    rest = [name for name in checks[0] if name not in passed]
    if rest:
        lines += ["", "| other checks | verdict | value | threshold |", "|---" * 4 + "|"]
        for name in rest:
            told = ", ".join(one[name]["status"] for one in checks)
            value, threshold = (numbers(one[name][key] for one in checks) for key in ("value", "threshold"))
            lines.append(f"| {name} | {told} | {value} | {threshold} |")
    return "\n".join(lines)


def spread(values: Iterable[float], digits: int | None = None) -> str:
    """Mean ± standard deviation, with as many digits as are worth reading."""
    known = list(values)
    mean = fmean(known)
    places = digits if digits is not None else 4 if abs(mean) < 1 else 3 if abs(mean) < 10 else 2
    return f"{mean:.{places}f}" + (f" ± {stdev(known):.{places}f}" if len(known) > 1 else "")


def numbers(values: Iterable[float | None]) -> str:
    return ", ".join("-" if value is None else f"{value:.3g}" for value in values)


def put(page: Path, text: str) -> None:
    """The tables between the two lines of a page."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page} must have the lines {BEGIN} and {END}: the tables go between them.")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> Mapping[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path, metavar="CONFIG", help="TOML, as of `fedstein train`")
    parser.add_argument("--forget", type=int, nargs="+", required=True, metavar="K", help="the agents that leave")
    parser.add_argument("--seeds", type=int, default=1, help="0, 1, ...")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="of the run folders")
    parser.add_argument("--repair", type=int, help="rounds of those who stay; a fifth of training's if left out")
    parser.add_argument("--tier", default="quick", help="of the audit: quick or full")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting, as of the command")
    parser.add_argument("--write", action="store_true", help="numbers.json and README.md beside CONFIG as well")
    asked = parser.parse_args(arguments)
    file, out = asked.config.resolve(), asked.out.resolve()
    study = {"config": tomllib.loads(file.read_text(encoding="utf-8")), "set": asked.set, "forget": asked.forget}
    out.mkdir(parents=True, exist_ok=True)
    if not (out / "asked.json").is_file():
        write(out / "asked.json", study)
    if read(out / "asked.json") != study:
        raise SystemExit(f"{out} has runs of other settings. Name another --out, or delete it.")
    records = []
    with contextlib.chdir(file.parent):
        for seed in range(asked.seeds):
            here = out / f"seed-{seed}"
            here.mkdir(parents=True, exist_ok=True)
            config = fs.config(file, *asked.set, f"seed={seed}")
            records.append(go(config, asked.forget, here, asked.repair, asked.tier))
            print(f"seed {seed}: {records[-1]['audit']['verdict']}", flush=True)
    study["seeds"] = records
    write(out / "numbers.json", study)
    text = tables(records)
    if asked.write:
        write(file.with_name("numbers.json"), study)
        put(file.with_name("README.md"), text)
    print(text)
    return study


if __name__ == "__main__":
    main()
