"""Studies: verdicts, shifted inputs, and `fedstein reproduce` end to end on small data."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from PIL import Image
from scipy.stats import ttest_1samp

from fedstein.cli.main import main
from fedstein.data import SHIFTS, enlarge, load_digits, shifted
from fedstein.errors import FedsteinError, UserError
from fedstein.metrics import accuracy, fit_scaling, nll, scaled
from fedstein.runs.evaluation import conditions, under_shifts
from fedstein.runs.folder import load_run_config
from fedstein.runs.problem import build_problem
from fedstein.settings import Config, make_config
from fedstein.store import load_lineage
from fedstein.studies import (
    STUDIES,
    Claim,
    Part,
    draw,
    fig2,
    fig3,
    fig3_settings,
    fig4,
    interval,
    reproduce,
    study_jobs,
)
from fedstein.studies.study import DPI
from fedstein.sweeps import Forget


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


def lines_of(axes):
    """The curves and markers of a panel that show something, by colour and label."""
    return [line for line in axes.get_lines() if len(line.get_xdata())]


def labels_of(axes):
    return [line.get_label() for line in axes.get_lines() if not line.get_label().startswith("_")]


def check_files(made, words):
    """PNG and SVG are the figure: of its size, with something on it, and with its words."""
    width, height = made.findings.size
    with Image.open(made.out / f"{made.study.name}.png") as image:
        image.load()
        assert image.size == (round(width * DPI), round(height * DPI))
        colours = image.convert("RGB").getcolors(maxcolors=1 << 24)
    assert len(colours) > 50  # lines in several colours, softened at their edges
    assert max(colours)[1] == (255, 255, 255)
    drawing = ElementTree.parse(made.out / f"{made.study.name}.svg")
    written = "".join(drawing.getroot().itertext())
    for word in words:
        assert word in written


def check_fig2(made):
    left, right = draw(made.findings).axes
    names = ["sharing 1", "sharing 1/2", "sharing 1/10", "ours"]
    for panel, metric, limits in ((left, "accuracy", (0.5, 0.9)), (right, "ece", (0.0, 0.25))):
        assert [line.get_label() for line in lines_of(panel)] == names
        assert [line.get_linestyle() for line in lines_of(panel)] == ["-", "-", "-", "--"]
        assert len({line.get_color() for line in lines_of(panel)}) == 4
        assert len(panel.collections) == 4  # an interval around each
        assert panel.get_ylim() == limits
        assert panel.get_xlabel() == "rounds"
        for line, setting in zip(lines_of(panel), ("sharing=1-1", "sharing=1-2", "sharing=1-10", "ours"), strict=True):
            here = [point for point in made.findings.points if point["setting"] == setting]
            assert list(line.get_xdata()) == [1, 2, 3, 4] == [point["round"] for point in here]
            assert list(line.get_ydata()) == [point[metric] for point in here]
            assert all(0 <= point[metric] <= 1 for point in here)
    assert (left.get_ylabel(), right.get_ylabel()) == ("accuracy", "ECE (15 bins)")
    check_files(made, [*names, "rounds", "accuracy", "ECE (15 bins)"])


def check_fig3(made):
    left, right = draw(made.findings).axes
    clean = {point["setting"]: point for point in made.findings.points if point["inputs"] == "clean"}
    assert set(clean) == {"fedavg", "dsvgd-5", "ours-5", "fedavg-scaled"}
    for panel, names in ((left, ("fedavg", "dsvgd-5")), (right, ("fedavg-scaled", "ours-5"))):
        shown = [label for label in labels_of(panel) if label in fig3_settings.WORDS.values()]
        assert shown == [fig3_settings.WORDS[name] for name in names]
        assert [text.get_text() for text in panel.get_legend().get_texts()] == shown
        curves = {line.get_label(): line for line in lines_of(panel)}
        for name in names:  # one seed: its mean is its point
            curve = curves[fig3_settings.WORDS[name]]
            assert list(curve.get_xdata()) == [pytest.approx(clean[name]["ece"])]
            assert list(curve.get_ydata()) == [pytest.approx(clean[name]["accuracy"])]
        markers = [line for line in lines_of(panel) if line.get_marker() == "o"]
        assert len(markers) == 2  # one budget, two settings
        (floor,) = {tuple(line.get_xdata()) for line in lines_of(panel) if line.get_linestyle() == ":"}
        assert floor[0] == floor[1] == pytest.approx(sum(one["ece_floor"] for one in clean.values()) / 4)
        assert panel.get_xlabel() == "ECE (15 bins)"
    assert (left.get_xlim(), left.get_ylim()) == (right.get_xlim(), right.get_ylim())
    assert left.get_title(loc="left") == "The letter's methods and coding"
    check_files(made, ["R_u = 1.0d", "what perfect calibration would show", "DSVGD, 5 particles", "ours, 5 particles"])


long = pytest.mark.skipif("FEDSTEIN_LONG" not in os.environ, reason="make test-long runs it")


@pytest.mark.parametrize(
    ("study", "runs", "check"), [(fig2, 2, check_fig2), pytest.param(fig3, 1, check_fig3, marks=long)]
)
def test_a_figure_from_its_command(study, runs, check, tmp_path, capsys, monkeypatch):
    whole = study.sweep
    monkeypatch.setattr(study, "sweep", lambda runs, quick: smaller(whole(runs, quick)))
    monkeypatch.setattr(fig3_settings, "QUICK", ("1.0d",))
    name = study.__name__.rpartition(".")[2]
    out = tmp_path / "out"
    told = []
    made = reproduce(name, quick=True, runs=runs, out=out, tell=lambda done, total: told.append((done, total)))
    claims = [claim.row() for claim in made.findings.claims]
    assert claims
    for claim in claims:
        assert claim["runs"] == runs
        assert math.isfinite(claim["effect"])
        if runs == 1:
            assert (claim["low"], claim["status"]) == (None, "undecided: one run has no interval")
        else:
            assert claim["low"] <= claim["effect"] <= claim["high"]
    names = {path.name for path in made.files}
    assert {f"{name}.png", f"{name}.svg", f"{name}.csv", "table.csv", "claims.json", "verdict.md"} <= names
    assert json.loads((out / "claims.json").read_text())["claims"] == claims
    assert made.rounds == sum(job.rounds for job in study_jobs(STUDIES[name], runs, True, out).jobs) > 0
    assert told == ([(done, 4) for done in (1, 2, 3, 4)] if study is fig3 else [])
    check(made)
    # Again, from the command: nothing is done twice, and all is the same.
    before = (out / "table.csv").read_bytes()
    code, text, words = fedstein(capsys, "reproduce", name, "--quick", "--runs", runs, "--out", out, "--json")
    assert code == 0, words
    again = json.loads(text)
    assert (again["rounds"], again["claims"]) == (0, claims)
    assert [Path(path).name for path in again["files"]] == [path.name for path in made.files]
    assert (out / "table.csv").read_bytes() == before


@long
def test_the_figure_of_forgetting(tmp_path, capsys, monkeypatch):
    load = fig4.load_preset
    small = ["data.name=digits", "model.hidden=[8]", "pretrain.rounds=5", "method.particles=10", "rounds=20",
             "data.examples=60", "method.local_steps=5", "uplink.budget=20d"]  # fmt: skip
    monkeypatch.setattr(fig4, "load_preset", lambda name, sets: load(name, [*sets[:-1], *small]))
    monkeypatch.setattr(fig4, "BUDGETS", ("1.0d",))
    out = tmp_path / "out"
    code, text, words = fedstein(capsys, "reproduce", "fig4", "--quick", "--runs", 1, "--out", out, "--json")
    assert code == 0, words
    assert len(json.loads(text)["claims"]) == 4
    made = reproduce("fig4", quick=True, runs=1, out=out)
    assert made.rounds == 0
    assert [claim.row() for claim in made.findings.claims] == json.loads(text)["claims"]
    # Every way of forgetting was done as it says, and from the same model.
    place = out / "runs" / "1.0d" / "seed-0"
    for folder, method, guarded, sharing in (
        ("as-written,sharing=1-1", "forget-svgd", False, 1.0),
        ("as-written,sharing=1-10", "forget-svgd", False, 0.1),
        ("guarded,sharing=1-1", "forget-svgd", True, 1.0),
        ("guarded,sharing=1-10", "forget-svgd", True, 0.1),
        ("take-back", "take-back", True, None),
        ("from-scratch", "retrain", True, None),
    ):
        newest = load_lineage(place / folder).newest
        assert (newest.method, newest.guarded, newest.keep_parent) == (method, guarded, True)
        assert (newest.agents, newest.parent) == ((2, 3), str(place / "trained"))
        if sharing is not None:
            config = load_run_config(place / folder)
            assert (config.uplink.sharing, config.uplink.common, newest.rounds) == (sharing, False, 40)
    # The figure shows them: solid what stays, dashed what is forgotten.
    panels = draw(made.findings).axes
    assert [panel.get_title(loc="left") for panel in panels] == [
        "Forget-SVGD, as written",
        "Forget-SVGD, guarded",
        "ours: take-back",
        "from scratch",
    ]
    labels = [["sharing 1", "sharing 1/10"], ["sharing 1", "sharing 1/10"], ["ours"], ["from scratch"]]
    for panel, names in zip(panels, labels, strict=True):
        shown = lines_of(panel)
        assert [line.get_linestyle() for line in shown] == ["--", "-"] * len(names)
        assert [line.get_label() for line in shown][1::2] == names
        assert panel.get_ylim() == (0, 1)
        assert panel.get_xlabel() == "rounds"
    assert [[len(line.get_xdata()) for line in lines_of(panel)] for panel in panels[:2]] == [[41] * 4, [41] * 4]
    for panel, how in ((panels[2], "take-back"), (panels[3], "from-scratch")):
        points = [point for point in made.findings.points if point["how"] == how]
        gone, kept = lines_of(panel)
        assert list(kept.get_xdata()) == [point["round"] for point in points]
        assert list(kept.get_ydata()) == [point["retained"] for point in points]
        assert list(gone.get_ydata()) == [point["forgotten"] for point in points]
    assert panels[0].get_ylabel() == "R_u = d\naccuracy"
    check_files(made, ["sharing 1/10", "retained labels", "forgotten labels", "ours: take-back"])


def test_runs_that_fail_are_told(tmp_path, monkeypatch):
    table = {"base": {"data": {"name": "npz", "path": "nowhere.npz"}}, "list": [{"name": "one"}]}
    monkeypatch.setattr(fig2, "sweep", lambda runs, quick: table)
    with pytest.raises(FedsteinError, match=r"1 of 1 jobs did not finish[^$]*one/seed-0: .*nowhere.npz"):
        reproduce("fig2", out=tmp_path / "out")


def test_only_the_letters_figures_can_be_reproduced(tmp_path):
    with pytest.raises(UserError, match=r"one of fig2, fig3, fig4\. Got 'fig5'"):
        reproduce("fig5")
    with pytest.raises(UserError, match="at least 1"):
        reproduce("fig2", runs=0, out=tmp_path / "out")


@pytest.mark.parametrize("missing", ["matplotlib", "scipy"])
def test_a_missing_extra_is_told_before_any_run(missing, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == missing]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UserError, match=r"pip install 'fedstein\[report\]'"):
        reproduce("fig2", quick=True, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_every_setting_of_every_study_is_a_valid_config(tmp_path):
    for study in STUDIES.values():
        for quick in (True, False):
            jobs = study.jobs(tmp_path, 2, quick)
            assert len({job.folder for job in jobs}) == len(jobs)
            for job in jobs:
                assert job.threads == 1  # so that a run is the same however many run beside it
                for step in job.steps:
                    if isinstance(step.work, Config) and step.work.uplink.budget is not None and study.name != "fig4":
                        assert step.work.uplink.link(step.work.method, 79_510) is not None
                if study.name == "fig4":
                    training, *erasures = job.steps
                    assert isinstance(training.work, Config)
                    assert all(isinstance(step.work, Forget) for step in erasures)
                    assert {step.work.parent for step in erasures} == {training.folder}


def test_shifted_inputs_need_images():
    problem = build_problem(make_config(overrides=["data.name=synthetic-gaussian"]))
    with pytest.raises(UserError, match="grey images"):
        under_shifts(problem, torch.zeros(1, problem.dim))
    assert conditions()[0] == "clean"
