"""The report and the comparison, opened in a real browser, and what they say against what the run recorded."""

from __future__ import annotations

import csv
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from fedstein.errors import RunError, UserError
from fedstein.report import write_audit, write_comparison, write_report
from fedstein.runs import verbs
from fedstein.runs.audit.audit import audit_run
from fedstein.runs.forget.request import ask
from fedstein.runs.recorder import Recorder
from fedstein.settings import make_config
from fedstein.store import read_metrics

SMALL = ["data.name=digits", "data.agents=4", "model.hidden=[16]", "method.particles=3", "method.local_steps=5",
         "method.step_size=0.01", "rounds=30", "evaluation.every=5", "uplink.budget=1d", "threads=1"]  # fmt: skip
WIDTHS = [1400, 390]


def train(path, *overrides):
    return verbs.train(make_config(overrides=[*SMALL, *overrides]), path).path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(tmp_path_factory.mktemp("report") / "run")


@pytest.fixture(scope="module")
def report(run):
    return write_report(run).page


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    for name, particles in (("dsvgd", 3), ("fedavg", 1)):
        for seed in (1, 2):
            train(folder / f"{name}-{seed}", f"method.name={name}", f"seed={seed}", f"method.particles={particles}")
    runs = sorted(folder.iterdir())
    return runs, write_comparison(runs, folder / "comparison.html")


CHARTS = [*(f"{name}-over-{what}" for what in ("rounds", "bits") for name in ("accuracy", "nll", "ece")),
          "reliability", "confidence", "frame", "kept", "captured"]  # fmt: skip


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_chart_is_drawn_and_nothing_runs_over(look, report, width, scheme):
    page = look(report, width, scheme)
    assert [figure.get_attribute("id") for figure in page.query_selector_all("figure")] == CHARTS
    for name in CHARTS:
        svg = page.query_selector(f"#{name} svg")
        box = svg.bounding_box()
        assert box["width"] <= width
        assert box["height"] > 50
        assert len(svg.get_attribute("aria-label")) > 30
        assert svg.query_selector(".line, .fill") is not None
        for mark in svg.query_selector_all(".line, .fill"):
            assert mark.bounding_box()["x"] + mark.bounding_box()["width"] <= box["x"] + box["width"] + 1
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(20, 22, 26)") == (scheme == "dark")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != background


@pytest.mark.parametrize("width", WIDTHS)
def test_values_are_shown_under_the_mouse_and_by_the_keyboard(look, report, run, width):
    page = look(report, width)
    lines = [line for line in read_metrics(run) if "accuracy" in line]
    svg, tip = page.locator("#accuracy-over-rounds svg"), page.locator("#accuracy-over-rounds .tip")
    assert tip.is_hidden()
    svg.scroll_into_view_if_needed()
    box = svg.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 5, box["y"] + box["height"] / 2)
    assert tip.inner_text().split("\n") == ["round: 30", f"accuracy: {round(lines[-1]['accuracy'], 4):g}"]
    page.mouse.move(box["x"] - 30, box["y"] - 40)
    assert tip.is_hidden()
    svg.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert tip.inner_text().split("\n") == ["round: 10", f"accuracy: {round(lines[1]['accuracy'], 4):g}"]
    page.locator("#frame rect").first.scroll_into_view_if_needed()
    page.locator("#frame rect").first.hover()
    assert "entries" in page.locator("#frame .tip").inner_text()
    page.locator("#reliability .plot svg").hover()
    assert "accuracy in the bin" in page.locator("#reliability .tip").inner_text()


def test_numbers_behind_a_chart_can_be_read(look, report, run):
    page = look(report, 1400)
    page.click("#nll-over-rounds summary")
    rows = page.locator("#nll-over-rounds tbody tr").all_inner_texts()
    lines = [line for line in read_metrics(run) if "nll" in line]
    assert [row.split("\t")[1] for row in rows] == [str(line["round"]) for line in lines]
    assert [float(row.split("\t")[2]) for row in rows] == pytest.approx([line["nll"] for line in lines], abs=1e-3)


def test_pictures_tables_and_words(look, report, run):
    page = look(report, 1400)
    pictures = page.query_selector_all(".inputs img")
    assert len(pictures) == 16
    assert all(p.get_attribute("alt") and p.evaluate("p => p.naturalWidth") == 8 for p in pictures)
    text = page.inner_text("main")
    for words in ("How to repeat it", "Agents", "Classes", "fedstein train config.toml"):
        assert words in text
    last = list(read_metrics(run))[-1]
    assert f"{last['accuracy']:.2%}" in text
    assert f"{last['ece']:.4f}" in text
    page.emulate_media(media="print")
    assert page.locator("#theme").is_hidden()
    assert len(page.pdf()) > 10_000


def test_figures_are_files_too(run, report):
    folder = run / "report-figures"
    assert {path.name for path in folder.iterdir()} == {f"{n}.{k}" for n in CHARTS for k in ("png", "svg", "csv")}
    assert (folder / "frame.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (folder / "frame.svg").read_text()
    with (folder / "ece-over-bits.csv").open() as file:
        rows = list(csv.DictReader(file))
    lines = [line for line in read_metrics(run) if "ece" in line]
    assert [float(row["ECE"]) for row in rows] == [line["ece"] for line in lines]
    assert [int(row["bits sent up by all agents"]) for row in rows] == [line["total_upload_bits"] for line in lines]
    with (folder / "frame.csv").open() as file:
        parts = {row["part"]: float(row["bits"]) for row in csv.DictReader(file)}
    bills = [line["uploads"][0] for line in read_metrics(run)]
    assert sum(parts.values()) == pytest.approx(bills[0]["budget_bits"])
    assert parts["positions"] == pytest.approx(np.mean([bill["position_bits"] for bill in bills]))


@pytest.mark.parametrize("width", WIDTHS)
def test_the_comparison_in_a_browser(look, comparison, width):
    _, compared = comparison
    page = look(compared.page, width)
    assert len(page.query_selector_all("figure svg[role=img]")) == 7
    svg = page.locator("#accuracy-against-ece .plot svg")
    svg.hover()
    tip = page.locator("#accuracy-against-ece .tip").inner_text()
    assert "dsvgd" in tip or "fedavg" in tip
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    legend = page.locator("#accuracy-over-bits .legend li").all_inner_texts()
    assert len(legend) == 2


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """A run that forgot an agent, and its audit."""
    folder = tmp_path_factory.mktemp("audited")
    run = train(folder / "run", "method.factor=linear", "recording.escrow=true")
    new = verbs.forget(ask(run, [1], "take-back", folder / "new")).path
    write_audit(audit_run(new))
    return new


@pytest.mark.parametrize("width", WIDTHS)
def test_the_audit_in_a_browser(look, audited, width):
    report = json.loads((audited / "audit" / "audit.json").read_text())
    page = look(audited / "audit" / "audit.html", width)
    assert page.locator(".verdict").inner_text().split()[0] == report["verdict"]
    rows = page.locator(".said table").first.locator("tbody tr")
    assert rows.count() == len(report["checks"])
    for row, check in zip(rows.all(), report["checks"], strict=True):
        cells = row.locator("td").all_inner_texts()
        assert (cells[0], cells[3], cells[4]) == (check["name"], check["status"], check["note"])
    assert page.locator("figure svg").count() >= 2
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    write_report(audited)
    assert "1, erased" in look(audited / "report.html", width).inner_text("main")


def test_the_comparison_against_numpy(comparison):
    runs, compared = comparison
    assert [row["runs"] for row in compared.rows] == [2, 2]
    for row, members in zip(compared.rows, (runs[:2], runs[2:]), strict=True):
        for name in ("accuracy", "ece", "nll", "brier"):
            values = [list(read_metrics(run))[-1][name] for run in members]
            assert row[name] == pytest.approx(np.mean(values))
            assert row[f"{name}_std"] == pytest.approx(np.std(values, ddof=1))
    folder = compared.page.parent / "comparison-figures"
    with (folder / "nll-over-rounds.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        members = runs[:2] if row["series"].startswith("dsvgd") else runs[2:]
        values = [list(read_metrics(run))[int(row["round"]) - 1]["nll"] for run in members]
        assert float(row["NLL"]) == pytest.approx(np.mean(values))
        assert [float(row["low"]), float(row["high"])] == pytest.approx(sorted(values))


@pytest.mark.parametrize(
    "overrides",
    [
        ["data.name=synthetic-mixture", "method.factor=kde", "method.particles=10", "uplink.budget=200"],
        ["data.name=synthetic-gaussian", "method.factor=linear", "uplink.budget=1000"],
        ["method.name=fedavg", "method.particles=1"],
        ["schedule.agents_per_round=4", "schedule.order=random"],
        ["uplink.entries=adaptive", "uplink.positions=informed"],
    ],
)
def test_other_kinds_of_runs(tmp_path, look, overrides):
    page = look(write_report(train(tmp_path / "run", *overrides)).page, 1400)
    assert len(page.query_selector_all("figure .plot svg")) >= 4


def test_without_a_budget_a_central_run_and_data_that_are_no_pictures(tmp_path, look):
    random = np.random.default_rng(0)
    arrays = {f"{k}_{part}": v for part in ("train", "test")
              for k, v in (("x", random.normal(size=(90, 7))), ("y", random.integers(0, 3, 90)))}  # fmt: skip
    np.savez(tmp_path / "mine.npz", **arrays)
    more = ["data.name=npz", f"data.path={tmp_path}/mine.npz"]
    config = make_config(overrides=[o for o in SMALL if "uplink" not in o] + more + ["method.name=svgd"])
    verbs.train(config, tmp_path / "run")
    page = look(write_report(tmp_path / "run").page, 390)
    assert "No bit budget" in page.inner_text("main")
    assert page.query_selector(".inputs img") is None


def test_a_page_of_ten_thousand_rounds_stays_small(tmp_path, run, look):
    """The rounds of a short run again and again, as the lines of a long one."""
    path = Path(shutil.copytree(run, tmp_path / "run"))
    lines = list(read_metrics(path))
    bits = lines[-1]["total_upload_bits"]
    with (path / "metrics.jsonl").open("w") as file:
        for before in range(0, 10_000, 30):
            for line in lines[: 10_000 - before]:
                sent = line["total_upload_bits"] + before // 30 * bits
                file.write(json.dumps(line | {"round": line["round"] + before, "total_upload_bits": sent}) + "\n")
    page = write_report(path).page
    assert page.stat().st_size < 3_000_000
    path = look(page, 1400).query_selector("#accuracy-over-rounds path").get_attribute("d")
    assert 400 < path.count("L") < 700
    with (page.parent / "report-figures" / "accuracy-over-rounds.csv").open() as file:
        assert sum(1 for _ in file) == 2_001


def test_hostile_names_stay_text(tmp_path, look):
    path = train(tmp_path / "<img src=x onerror=alert(1)>" / "</script><script>alert(2)</script>", "rounds=5")
    page = look(write_report(path, tmp_path / "page.html").page, 1400)
    assert page.query_selector("img[src=x]") is None
    page = look(write_comparison([path], tmp_path / "compared.html").page, 1400)
    assert page.query_selector("img[src=x]") is None


def test_mistakes(tmp_path, run):
    with pytest.raises(UserError, match="not a run folder"):
        write_report(tmp_path)
    with pytest.raises(UserError, match="twice"):
        write_comparison([run, run], tmp_path / "c.html")
    with pytest.raises(RunError, match="Cannot write the report"):
        write_report(run, Path("/proc/nothing/report.html"))
    empty = tmp_path / "empty"
    Recorder.create(empty, make_config(overrides=SMALL)).close()
    with pytest.raises(UserError, match="no evaluated round"):
        write_comparison([run, empty], tmp_path / "c.html")
    with pytest.raises(UserError, match="no checkpoint"):
        write_report(empty)


def test_damaged_metrics_are_told(tmp_path, run):
    shutil.copytree(run, tmp_path / "run")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "run" / "metrics.jsonl").write_text("".join([*lines[:12], "nonsense\n", *lines[13:]]))
    with pytest.warns(UserWarning, match="damaged after round 12"):
        page = write_report(tmp_path / "run").page
    assert "metrics.jsonl is damaged after round 12" in page.read_text()


def test_devices_and_folders_are_not_replaced(tmp_path, run):
    os.mkfifo(tmp_path / "pipe")
    for target in (tmp_path / "pipe", tmp_path, Path()):
        with pytest.raises(UserError, match="--out"):
            write_report(run, target)


def test_runs_of_one_setting_are_compared_at_a_round_that_all_have(tmp_path):
    short, whole = train(tmp_path / "short", "seed=1"), train(tmp_path / "whole", "seed=2")
    lines = (short / "metrics.jsonl").read_text().splitlines(keepends=True)
    (short / "metrics.jsonl").write_text("".join(lines[:17]))
    row = write_comparison([short, whole], tmp_path / "c.html").rows[0]
    values = [list(read_metrics(run))[14]["accuracy"] for run in (short, whole)]
    assert row["rounds"] == 15
    assert row["accuracy"] == pytest.approx(np.mean(values))
    shutil.copytree(whole, tmp_path / "copy")
    with pytest.warns(UserWarning, match="same seed"):
        write_comparison([whole, tmp_path / "copy"], tmp_path / "c.html")


def test_a_damaged_line_does_not_break_the_report(tmp_path, run):
    shutil.copytree(run, tmp_path / "run")
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"round": 31, "uplo')
    with (tmp_path / "run" / "journal.jsonl").open("a") as file:
        file.write(json.dumps(["no", "event"]) + "\n\xff\n")
    assert write_report(tmp_path / "run").page.exists()


NONSENSE = [None, "x", -1, 1e308, [], [1], {}, {"a": 1}, True, [None], [{}]]


@pytest.mark.filterwarnings("ignore:The file")
@pytest.mark.parametrize("name", ["metrics.jsonl", "journal.jsonl"])
def test_lines_of_wrong_types_are_not_believed(tmp_path, run, name):
    """Whatever stands in a line, reading ends before it or leaves it out; nothing breaks."""
    from fedstein.cli.watch import _Seen
    from fedstein.report.groups import read_run
    from fedstein.report.story import read_story

    shutil.copytree(run, tmp_path / "run")
    path = tmp_path / "run" / name
    lines = path.read_text().splitlines()
    config = make_config(overrides=SMALL)
    place = next(i for i, line in enumerate(lines) if "accuracy" in line or '"sent"' in line)
    whole = json.loads(lines[place])
    keys = [(key,) for key in whole] + [("uploads", 0, key) for key in whole.get("uploads", [{}])[0]]
    for keys_in in keys:
        for value in NONSENSE:
            broken = json.loads(lines[place])
            inner = broken
            for key in keys_in[:-1]:
                inner = inner[key]
            inner[keys_in[-1]] = value
            path.write_text("\n".join([*lines[:place], json.dumps(broken), *lines[place + 1 :]]) + "\n")
            read_story(tmp_path / "run")
            seen = _Seen(tmp_path / "run", config)
            seen.look()
            seen.view(80)
            try:
                read_run(tmp_path / "run")
            except UserError:
                assert place == 0 or name == "metrics.jsonl"
            rounds = [line["round"] for line in read_metrics(tmp_path / "run")]
            assert rounds == list(range(1, len(rounds) + 1))
