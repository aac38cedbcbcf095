"""Studies: verdicts, shifted inputs, and `fedstein reproduce` end to end on small data."""

from __future__ import annotations

import json
import math
import sys

import pytest
import torch
from scipy.stats import ttest_1samp

from fedstein.cli.main import main
from fedstein.data import SHIFTS, enlarge, load_digits, shifted
from fedstein.metrics import accuracy, fit_scaling, nll, scaled
from fedstein.studies import STUDIES, Claim, Part, fig2, fig3, fig4, interval
from fedstein.studies.judge import conditions, under_shifts


def test_the_interval_is_scipys():
    values = [0.3, 0.1, 0.25, 0.4]
    theirs = ttest_1samp(values, 0).confidence_interval(0.95)
    mean, low, high = interval(values)
    assert (mean, low, high) == pytest.approx((0.2625, theirs.low, theirs.high))
    assert interval([0.5]) == (0.5, None, None)


@pytest.mark.parametrize(
    ("parts", "status", "outcomes", "weakest"),
    [
        ([[0.5, 0.6, 0.7], [0.1, 0.1, 0.11]], "reproduced", "holds, holds", 0),  # 0.6 of 0.25 is less than 0.10 of 0.01
        ([[0.5, 0.6, 0.7], [-0.1, 0.1, 0.11]], "reproduced only for part 0", "holds, undecided", 1),
        ([[0.0, 0.0, 0.0], [-0.5, -0.6, -0.7]], "not reproduced", "undecided, the opposite holds", 1),
        ([[0.5], [0.1]], "undecided: one run has no interval", "undecided, undecided", 1),
        ([[2.0, 2.0], [9.0, math.nan]], "reproduced only for part 0", "holds, undecided", 1),
    ],
)
def test_verdicts(parts, status, outcomes, weakest):
    claim = Claim("So it is.", "points", [Part(f"part {i}", values) for i, values in enumerate(parts)])
    row = claim.row()
    assert row["status"] == claim.status == status
    assert {"claim", "status", "effect", "low", "high", "runs"} <= set(row)
    assert ", ".join(part.outcome for part in claim.parts) == outcomes
    assert row["part"] == f"part {weakest}"
    mean = sum(parts[weakest]) / len(parts[weakest])
    assert row["effect"] == (None if math.isnan(mean) else mean)


def test_scaling_is_found_where_it_was_put():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(20_000, 10, generator=generator)
    labels = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator)[:, 0]
    overconfident = torch.softmax(3 * logits, 1)
    scale = fit_scaling(overconfident, labels)
    assert scale == pytest.approx(3.0, rel=0.03)
    better = scaled(overconfident, scale)
    assert accuracy(better, labels) == accuracy(overconfident, labels)
    assert nll(better, labels) < nll(overconfident, labels)
    torch.testing.assert_close(scaled(better, 1.0), better)


def test_shifts_do_what_they_say():
    images = load_digits().test.x
    for name, (_, levels) in SHIFTS.items():
        mild, strong = (
            shifted(images, name, level, torch.Generator().manual_seed(0)) for level in (levels[0], levels[-1])
        )
        assert mild.shape == images.shape
        assert mild.min() >= 0
        assert mild.max() <= 1 + 1e-6
        assert (mild - images).norm() < (strong - images).norm()
        assert shifted(images, name, levels[0], torch.Generator().manual_seed(0)).equal(mild)
    turned = shifted(images, "rotation", 90.0, torch.Generator().manual_seed(1))
    either = torch.stack([images.rot90(1, (2, 3)), images.rot90(-1, (2, 3))])
    assert ((turned - either).abs().amax((2, 3, 4)).amin(0) < 1e-4).all()  # a quarter turn is exact
    covered = shifted(torch.ones(5, 1, 28, 28), "occlusion", 0.5, torch.Generator().manual_seed(0))
    assert (covered == 0).sum((1, 2, 3)).tolist() == [14 * 14] * 5
    assert enlarge(images, 28, 28).shape == (len(images), 1, 28, 28)


def test_other_shapes_are_turned_and_covered():
    wide = torch.rand(3, 1, 10, 40, generator=torch.Generator().manual_seed(0))
    assert shifted(wide, "occlusion", 0.5, torch.Generator().manual_seed(0)).shape == wide.shape
    bar = torch.zeros(1, 1, 20, 40)
    bar[..., 10, 15:25] = 1.0
    turned = shifted(bar, "rotation", 90.0, torch.Generator().manual_seed(0))
    assert turned[0, 0].amax(1).gt(0.4).sum() >= 9  # as long as it was, not sheared


def test_a_model_that_never_forgets_is_not_sooner():
    stays = [(at, 0.6, 0.8) for at in range(41)]
    assert fig4._forgotten(stays) is None
    assert fig4._until_low([stays]) == "-; never in 1"
    scratch = [(10, 0.0, 0.5), (20, 0.0, 0.79), (30, 0.0, 0.81)]
    assert fig4._until_as_good(scratch, 0.8) == 21
    assert fig4._until_as_good(scratch, 0.9) == 30


def test_numbers_that_are_not_finite_decide_nothing():
    claim = Claim("So it is.", "points", [Part("a", [math.inf, 1.0, 2.0]), Part("b", [0.1, 0.1, 0.11])])
    assert claim.status == "reproduced only for b"


def fedstein(capsys, *arguments):
    sys.argv = ["fedstein", *map(str, arguments)]
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code, *capsys.readouterr()


def smaller(table):
    """A study on digits, a few rounds long."""
    table["base"] |= {"rounds": 4, "evaluation": {"every": 1}, "data": {"name": "digits", "agents": 3}}
    table["base"]["model"] = {"hidden": [8]}
    for entry in table["list"]:
        if "data" in entry:
            entry["data"] = {"validation": 200}
    return table


@pytest.mark.parametrize(("study", "runs"), [(fig2, 2), (fig3, 1)])
def test_a_figure_from_its_command(study, runs, tmp_path, capsys, monkeypatch):
    whole = study.sweep
    monkeypatch.setattr(study, "sweep", lambda runs, quick: smaller(whole(runs, quick)))
    monkeypatch.setattr(fig3, "QUICK", ("1.0d",))
    name = study.__name__.rpartition(".")[2]
    out = tmp_path / "out"
    code, text, words = fedstein(capsys, "reproduce", name, "--quick", "--runs", runs, "--out", out, "--json")
    assert code == 0, words
    found = json.loads(text)
    assert found["claims"]
    for claim in found["claims"]:
        assert claim["runs"] == runs
        assert math.isfinite(claim["effect"])
        if runs == 1:
            assert (claim["low"], claim["status"]) == (None, "undecided: one run has no interval")
        else:
            assert claim["low"] <= claim["effect"] <= claim["high"]
    names = {path.rpartition("/")[2] for path in found["files"]}
    assert {f"{name}.png", f"{name}.svg", f"{name}.csv", "table.csv", "claims.json", "verdict.md"} <= names
    assert (out / f"{name}.png").stat().st_size > 10_000
    # Again: nothing is done twice, and all is the same.
    before = (out / "table.csv").read_bytes()
    code, text, _ = fedstein(capsys, "reproduce", name, "--quick", "--runs", runs, "--out", out, "--json")
    assert (code, json.loads(text)["rounds"], json.loads(text)["claims"]) == (0, 0, found["claims"])
    assert (out / "table.csv").read_bytes() == before


def test_the_figure_of_forgetting(tmp_path, capsys, monkeypatch):
    load = fig4.load_preset
    small = ["data.name=digits", "model.hidden=[8]", "pretrain.rounds=5", "method.particles=10", "rounds=20",
             "data.examples=60", "method.local_steps=5", "uplink.budget=20d"]  # fmt: skip
    monkeypatch.setattr(fig4, "load_preset", lambda name, sets: load(name, [*sets[:-1], *small]))
    monkeypatch.setattr(fig4, "BUDGETS", ("1.0d",))
    out = tmp_path / "out"
    code, text, words = fedstein(capsys, "reproduce", "fig4", "--quick", "--runs", 1, "--out", out, "--json")
    assert code == 0, words
    found = json.loads(text)
    assert len(found["claims"]) == 4
    assert (out / "fig4.png").stat().st_size > 10_000


def test_every_setting_of_every_study_is_a_valid_config(tmp_path):
    for study in STUDIES.values():
        for quick in (True, False):
            jobs = study.jobs(tmp_path, 2, quick)
            assert len({job.folder for job in jobs}) == len(jobs)
            for job in jobs:
                for step in job.steps:
                    if step.config is not None and step.config.uplink.budget is not None and study.name != "fig4":
                        step.config.uplink.terms(step.config.method, 79_510)


def test_shifted_inputs_need_images():
    from fedstein.build import build_problem
    from fedstein.config import make_config
    from fedstein.errors import UserError

    problem = build_problem(make_config(overrides=["data.name=synthetic-gaussian"]))
    with pytest.raises(UserError, match="grey images"):
        under_shifts(problem, torch.zeros(1, problem.model.dim))
    assert conditions()[0] == "clean"
