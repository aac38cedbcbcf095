"""What is written for runs of all kinds, how settings are called, and what is said where something is missing."""

from __future__ import annotations

import base64
import io
import re
import shutil
import sys

import pytest
import torch
from torch import nn

import fedstein
from fedstein.data import load_digits
from fedstein.errors import UserError
from fedstein.report import write_audit, write_comparison, write_report
from fedstein.report.sections import pictures
from fedstein.runs import verbs
from fedstein.runs.audit.audit import audit_run
from fedstein.runs.forget.request import ask
from fedstein.runs.given import take_in
from fedstein.settings import make_config

TINY = ["data.name=digits", "data.agents=3", "model.hidden=[4]", "method.particles=2", "method.local_steps=2",
        "rounds=4", "evaluation.every=2", "uplink.budget=4.0d", "threads=1"]  # fmt: skip
LONG = "method.step_size=0.01,uplink.budget=4.0d,method.particles=2"


def train(path, *overrides):
    return verbs.train(make_config(overrides=[*TINY, *overrides]), path).path


def forget(run, out, method="retrain"):
    return verbs.forget(ask(run, [1], method, out, keep_parent=True)).path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(tmp_path_factory.mktemp("written") / "run")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """The folders of a sweep, OUT/NAME/seed-N, of two settings whose differences take many words."""
    out = tmp_path_factory.mktemp("sweep")
    other = ["method.step_size=0.02", "method.kernel=imq", "method.temperature=0.5", "prior.std=2.0"]
    kinds = {LONG: ["method.step_size=0.01"], "other": other}
    for name, overrides in kinds.items():
        for seed in (0, 1):
            train(out / name / f"seed-{seed}", *overrides, f"seed={seed}")
    return out


def test_what_was_written_is_told(run, tmp_path):
    written = write_report(run, tmp_path / "page.html")
    assert written.page == tmp_path / "page.html"
    assert written.json is None
    assert set(written.files) == set((tmp_path / "page-figures").iterdir())
    assert {file.suffix for file in written.files} == {".png", ".svg", ".csv"}


@pytest.mark.parametrize("width", [1400, 390])
def test_settings_of_a_sweep_are_called_like_their_folders(sweep, look, tmp_path, width):
    runs = sorted(sweep.glob("*/seed-*"))
    compared = write_comparison(runs, tmp_path / "compared.html")
    assert [row["setting"] for row in compared.rows] == [LONG, "other"]
    assert [row["runs"] for row in compared.rows] == [2, 2]
    page = look(compared.page, width)
    assert page.locator("#accuracy-over-bits .legend li").all_inner_texts() == [LONG, "other"]
    rows = page.locator("table").first.locator("tbody tr")
    assert [row.locator("td").first.inner_text() for row in rows.all()] == [LONG, "other"]
    page.locator("#accuracy-against-ece .plot svg").hover()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert LONG in (tmp_path / "compared-figures" / "nll-over-rounds.svg").read_text()


def test_folders_that_do_not_tell_settings_apart_give_no_names(sweep, tmp_path):
    """Two settings in folders of one name, one setting in folders of two names, or one setting alone."""
    runs = sorted(sweep.glob("*/seed-*"))
    alone = write_comparison(runs[:2], tmp_path / "c.html").rows
    assert [row["setting"] for row in alone] == ["dsvgd"]
    for names in (["same", "same", "same", "same"], ["a", "b", "c", "c"], ["a", "b", "b", "b"]):
        places = [tmp_path / "-".join(names) / str(i) / name / "run" for i, name in enumerate(names)]
        for run, place in zip(runs, places, strict=True):
            shutil.copytree(run, place)
        rows = write_comparison(places, tmp_path / "c.html").rows
        assert [row["runs"] for row in rows] == [2, 2]
        assert all("step_size" in row["setting"] and "kernel" in row["setting"] for row in rows)
        cells = re.findall(r"<td>([AB]: [^<]*)</td>", (tmp_path / "c.html").read_text())
        assert cells == [f"{letter}: {row['setting']}" for letter, row in zip("AB", rows, strict=True)]


def test_runs_that_forgot_are_another_setting_than_those_that_did_not(run, tmp_path):
    other = train(tmp_path / "other", "seed=1")
    gone = [forget(parent, tmp_path / f"gone-{i}") for i, parent in enumerate((run, other))]
    rows = write_comparison([run, other, *gone], tmp_path / "c.html").rows
    assert [row["runs"] for row in rows] == [2, 2]
    assert "method retrain" in rows[1]["setting"]


def test_kinds_of_problems_are_compared_in_what_they_share(run, tmp_path):
    synthetic = train(tmp_path / "synthetic", "data.name=synthetic-gaussian", "model.hidden=[]", "uplink.budget=1000")
    with pytest.warns(UserWarning, match=r"differ in data\.name"):
        rows = write_comparison([run, synthetic], tmp_path / "c.html").rows
    assert ["accuracy" in row for row in rows] == [True, False]
    assert ["posterior_mean_error" in row for row in rows] == [False, True]


def test_nothing_to_compare_is_refused(tmp_path):
    with pytest.raises(UserError, match="Got none"):
        write_comparison([], tmp_path / "c.html")


def test_a_retrained_run_is_repeated_from_its_parent(run, tmp_path):
    """Its settings alone would train all agents again."""
    text = write_report(forget(run, tmp_path / "gone")).page.read_text()
    assert "fedstein forget PARENT --agents 1 --method retrain --out again" in text
    assert "fedstein train config.toml" not in text
    assert "<h2>Lineage</h2>" in text
    assert "[[erasures]]" in text


@pytest.mark.parametrize("package", ["matplotlib", "matplotlib.figure", "PIL", "PIL.Image"])
def test_a_missing_extra_is_named_before_anything_is_written(run, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=r"pip install 'fedstein\[report\]'"):
        write_report(run, tmp_path / "page.html")
    with pytest.raises(UserError, match=r"pip install 'fedstein\[report\]'"):
        write_comparison([run], tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_an_audit_is_kept_where_its_page_cannot_be_drawn(run, tmp_path, monkeypatch):
    audit = audit_run(forget(run, tmp_path / "gone"))
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(UserError, match=r"Reports need an extra: pip install 'fedstein\[report\]'\."):
            write_audit(audit)
    folder = audit.run / "audit"
    assert (folder / "audit.json").is_file()
    assert not (folder / "audit.html").exists()
    written = write_audit(audit)
    assert (written.page, written.json) == (folder / "audit.html", folder / "audit.json")
    assert written.json in written.files
    assert all(file.is_file() for file in written.files)


@pytest.fixture(scope="module")
def parts():
    """A module, the data of three agents, and test examples, to be given in Python."""
    digits = load_digits()
    agents = [(digits.train.x[i::3][:60], digits.train.y[i::3][:60]) for i in range(3)]
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), agents, (digits.test.x[:80], digits.test.y[:80])


def train_given(parts, out, test):
    module, agents, _ = parts
    method = fedstein.DSVGD(particles=2, local_steps=2, factor="linear")
    fedstein.train(module, agents, test=test, method=method, rounds=4, evaluate_every=2, threads=1, escrow=True,
                   uplink=fedstein.Uplink("4.0d"), out=out, progress=False)  # fmt: skip
    return take_in(module, agents, test)


def test_the_page_of_a_given_run_says_what_it_needs_again(parts, tmp_path, look):
    given = train_given(parts, tmp_path / "run", parts[2])
    page = look(write_report(tmp_path / "run", given=given).page, 1400)
    text = page.inner_text("main")
    assert "dsvgd on given data: 3 agents" in text
    assert "this run was made in Python: it needs the same module and the same data again" in text
    assert "fedstein train config.toml" not in text
    assert "fedstein evaluate" not in text
    assert f"fedstein.open('{tmp_path / 'run'}', module=..., agents=..., test=...)" in text
    assert len(page.query_selector_all(".inputs img")) == 16
    assert write_comparison([tmp_path / "run"], tmp_path / "c.html").rows[0]["runs"] == 1


def test_what_was_given_is_not_made_up(parts, tmp_path):
    train_given(parts, tmp_path / "run", parts[2])
    with pytest.raises(UserError, match="made in Python"):
        write_report(tmp_path / "run")


def test_a_given_run_without_test_examples(parts, tmp_path, look):
    given = train_given(parts, tmp_path / "run", None)
    text = look(write_report(tmp_path / "run", given=given).page, 390).inner_text("main")
    assert "there is nothing to judge the particles by" in text
    assert "The posterior is known" not in text


def test_a_given_run_after_an_erasure(parts, tmp_path):
    given = train_given(parts, tmp_path / "run", parts[2])
    gone = verbs.forget(ask(tmp_path / "run", [1], "take-back", tmp_path / "gone", given, repair=2), given).path
    text = write_report(gone, given=given).page.read_text()
    assert "agents 1 forgotten by take-back" in text
    assert "fedstein forget PARENT" not in text
    page = write_audit(audit_run(gone, given=given)).page.read_text()
    assert "gone, on given data: requested" in page


def test_a_metric_that_was_never_finite_is_left_out():
    from fedstein.report.story import evaluated_in

    line = {"round": 3, "total_upload_bits": 8, "accuracy": 0.5, "nll": None, "total_variation": [1]}
    evaluated = evaluated_in(line)
    assert evaluated is not None
    assert evaluated.metrics == {"accuracy": 0.5}
    assert evaluated_in({"round": 3, "total_upload_bits": 8}) is None


def _pixels(shape):
    """The picture of inputs of a shape, as the page has it."""
    from PIL import Image

    shown = pictures._image(torch.rand(shape), "one")
    if not shown.startswith("<img"):
        return shown[:4]
    with Image.open(io.BytesIO(base64.b64decode(re.search(r"base64,([^\"]+)", shown)[1]))) as image:
        return image.mode, image.size


def test_pictures_are_taken_from_inputs_that_can_be_some():
    assert _pixels((1, 28, 20)) == ("L", (20, 28))
    assert _pixels((64,)) == ("L", (8, 8))
    assert _pixels((3, 8, 12)) == ("RGB", (12, 8))
    assert _pixels((6, 200)) == "<svg"  # channels over time: lines
    assert _pixels((7,)) == ""
    assert _pixels((2, 9, 9)) == ""
