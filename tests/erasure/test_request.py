"""`fedstein forget` and `fedstein audit` in real run folders."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedstein import UserError, config, train_config
from fedstein.cli.main import main
from fedstein.runs.audit.audit import SCHEMA
from fedstein.runs.folder import load_particles, load_run_config, load_state
from fedstein.runs.forget.request import ask
from fedstein.runs.recorder import Recorder
from fedstein.store import load_lineage, purge, read_journal, read_metrics
from fedstein.store.checkpoints import save
from fedstein.store.turn_files import TurnFiles

SETTINGS = ["data.name=digits", "data.partition=class-pairs", "data.agents=10", "data.examples=60", "model.hidden=[]",
            "method.factor=linear", "method.particles=4", "method.likelihood=mean", "method.temperature=0.1",
            "method.local_steps=10", "uplink.budget=4d", "uplink.record_frames=true", "recording.escrow=true",
            "evaluation.every=50", "rounds=150", "threads=1"]  # fmt: skip
KEYS = {"run", "parent", "method", "agents", "rounds", "upload_bits", "forgotten_accuracy", "retained_accuracy",
        "seconds"}  # fmt: skip


def fedstein(capsys, *arguments):
    """Exit code, stdout, stderr."""
    sys.argv = ["fedstein", *map(str, arguments)]
    with pytest.raises(SystemExit) as end:
        main()
    out = capsys.readouterr()
    return end.value.code, out.out, out.err


def told(capsys, *arguments):
    """What a command that must succeed says as JSON."""
    code, out, err = fedstein(capsys, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def train(folder, *overrides):
    sets = [part for line in (*SETTINGS, *overrides) for part in ("--set", line)]
    sys.argv = ["fedstein", "train", "--out", str(folder), "--json", *sets]
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("trained") / "run"
    train(path)
    return path


@pytest.fixture
def run(trained, tmp_path):
    return Path(shutil.copytree(trained, tmp_path / "run"))


def everything_of(folder, agents):
    return [path for path in folder.rglob("*") if path.name in {f"agent-{agent}" for agent in agents}]


@pytest.mark.parametrize(
    ("method", "options"),
    [("take-back", []), ("take-back", ["--by", "agent"]), ("take-back", ["--subtract"]), ("forget-svgd", []),
     ("forget-svgd", ["--unguarded", "--rounds", "40"]), ("retrain", [])],
)  # fmt: skip
def test_every_method_forgets_and_purges(run, tmp_path, capsys, method, options):
    before = read_all(run)
    result = told(capsys, "forget", run, "--agents", "2,3", "--method", method, *options, "--out", tmp_path / "new")
    new = tmp_path / "new"
    assert result.keys() >= KEYS
    assert (result["method"], result["agents"]) == (method, [2, 3])
    assert result["forgotten_accuracy"] < 0.2
    assert "forgotten_label_accuracy" in result
    lines = list(read_metrics(new))
    assert result["rounds"] == len(lines) - (0 if method == "retrain" else 150)
    assert result["upload_bits"] == lines[-1]["total_upload_bits"] - (0 if method == "retrain" else before[149])
    # Nothing of the agents is left, in the new run and in the old one, nor is any model that knew them.
    assert not everything_of(new, [2, 3])
    assert not everything_of(run, [2, 3])
    assert not list((run / "checkpoints").glob("*"))
    assert len(list((new / "checkpoints").glob("*.json"))) == 1
    # They are never scheduled again, also when the run is extended.
    longer = told(capsys, "resume", new, "--rounds", len(lines) + 12)
    assert longer["total_rounds"] == len(lines) + 12
    erasure = load_lineage(new).newest
    late = [line for line in read_metrics(new) if line["round"] > erasure.start + erasure.rounds]
    assert late
    assert not {2, 3} & {upload["agent"] for line in late for upload in line["uploads"]}
    assert [event["event"] for event in read_journal(run)][-3:] == ["erasure requested", "purged", "erasure done"]


def read_all(run):
    return [line["total_upload_bits"] for line in read_metrics(run)]


def test_asking_again_changes_nothing(run, tmp_path, capsys):
    ask = ["forget", run, "--agents", "3,2", "--out", tmp_path / "new"]
    first = told(capsys, *ask)
    journal = (tmp_path / "new" / "journal.jsonl").read_bytes(), (run / "journal.jsonl").read_bytes()
    assert told(capsys, *ask) == first
    assert journal == ((tmp_path / "new" / "journal.jsonl").read_bytes(), (run / "journal.jsonl").read_bytes())
    code, _, err = fedstein(capsys, "forget", run, "--agents", "5", "--out", tmp_path / "other")
    assert code == 2
    assert "were purged when agents 2, 3 were forgotten" in err
    code, _, err = fedstein(capsys, "forget", tmp_path / "new", "--agents", "2", "--out", tmp_path / "other")
    assert code == 2
    assert "forgotten already" in err


def test_a_second_erasure_goes_on_from_the_first(run, tmp_path, capsys):
    told(capsys, "forget", run, "--agents", "2,3", "--out", tmp_path / "one")
    result = told(capsys, "forget", tmp_path / "one", "--agents", "0", "--out", tmp_path / "two", "--repair", "21")
    assert result["agents"] == [0]
    assert set(load_state(tmp_path / "two").memories) == {1, 4, 5, 6, 7, 8, 9}
    assert not list((tmp_path / "one" / "checkpoints").glob("*"))
    assert not everything_of(tmp_path, [0, 2, 3])


def test_a_stop_before_anything_but_the_request(run, tmp_path, capsys, monkeypatch):
    """The request is on disk before it is acknowledged; from then on the old run cannot go on."""

    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "create", stop)
        code, _, _ = fedstein(capsys, "forget", run, "--agents", "2,3", "--out", tmp_path / "new")
    assert code == 130
    assert [event["event"] for event in read_journal(run)][-1] == "erasure requested"
    code, _, err = fedstein(capsys, "resume", run)
    assert code == 2
    assert "asked to be forgotten" in err
    code, _, err = fedstein(capsys, "forget", run, "--agents", "5", "--out", tmp_path / "other")
    assert code == 2
    assert "Another erasure" in err
    assert told(capsys, "forget", run, "--agents", "2,3", "--out", tmp_path / "new")["rounds"] == 32


def test_nothing_is_published_before_the_repair(run, tmp_path, capsys, monkeypatch):
    alone = Path(shutil.copytree(run, tmp_path / "alone"))
    new = tmp_path / "new"
    rounds = iter(range(100))
    real = Recorder.after_round

    def stop_in_the_middle(self, state, about):
        real(self, state, about)
        if next(rounds) == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "after_round", stop_in_the_middle)
        code, _, _ = fedstein(capsys, "forget", run, "--agents", "2,3", "--out", new)
    assert code == 130
    for verb in (["evaluate", new], ["report", new], ["audit", new]):
        code, _, err = fedstein(capsys, *verb)
        assert code == 2
        assert "not finished" in err
    assert everything_of(run, [2, 3])  # not purged before it is done
    told(capsys, "resume", new)
    assert not everything_of(run, [2, 3])
    told(capsys, "forget", alone, "--agents", "2,3", "--out", tmp_path / "alone-new")
    assert torch.equal(load_state(new).particles, load_state(tmp_path / "alone-new").particles)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--agents", "10"], "in 0..9. Got 10"),
        (["--agents", "-1"], "in 0..9. Got -1"),
        (["--agents", "2,2"], "twice"),
        (["--agents", "two"], "have no names. Got 'two'"),
        (["--agents", ""], "at least one agent. Got none"),
        (["--agents", "0,1,2,3,4,5,6,7,8,9"], "leave at least one"),
        (["--agents", "2", "--method", "forget-svgd", "--by", "server"], "needs take-back"),
        (["--agents", "2", "--repair", "0"], "at least 1"),
    ],
)
def test_mistakes_are_told_and_nothing_is_written(trained, tmp_path, capsys, arguments, words):
    before = sorted((path, path.stat().st_mtime_ns) for path in trained.rglob("*") if path.name != "lock")
    code, _, err = fedstein(capsys, "forget", trained, *arguments, "--out", tmp_path / "new")
    assert code == 2
    assert words in err
    assert sorted((path, path.stat().st_mtime_ns) for path in trained.rglob("*") if path.name != "lock") == before
    assert not (tmp_path / "new").exists()


def test_places_that_cannot_be_used(trained, run, tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("precious")
    for out in (tmp_path / "full", run, tmp_path / "full" / "mine.txt"):
        code, _, err = fedstein(capsys, "forget", run, "--agents", "2", "--out", out)
        assert code == 2
        assert "'--out'" in err
    assert (tmp_path / "full" / "mine.txt").read_text() == "precious"
    code, _, err = fedstein(capsys, "forget", tmp_path / "nowhere", "--agents", "2", "--out", tmp_path / "new")
    assert code == 2
    assert "not a run folder" in err
    code, _, err = fedstein(capsys, "audit", trained)
    assert code == 2
    assert "forgot nothing" in err
    code, _, err = fedstein(capsys, "train", trained / "config.toml", "--preset", "unlearning")
    assert code == 2


def test_the_config_of_an_erasure_cannot_be_trained_but_that_of_a_retraining_can(run, tmp_path, capsys):
    kept = Path(shutil.copytree(run, tmp_path / "kept"))
    told(capsys, "forget", run, "--agents", "2", "--out", tmp_path / "new", "--repair", "18")
    code, _, err = fedstein(capsys, "train", tmp_path / "new" / "config.toml", "--out", tmp_path / "again")
    assert code == 2
    assert "begins where another run has ended" in err
    told(capsys, "forget", kept, "--agents", "2", "--method", "retrain", "--out", tmp_path / "scratch")
    told(capsys, "train", tmp_path / "scratch" / "config.toml", "--out", tmp_path / "again")
    one, other = (load_state(tmp_path / name).particles for name in ("scratch", "again"))
    assert torch.equal(one, other)


def test_a_full_disk_loses_nothing(run, tmp_path, capsys, monkeypatch):
    real, left = os.write, [200]

    def fills_up(file, content):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        return real(file, content)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fills_up)
        code, _, err = fedstein(capsys, "forget", run, "--agents", "2,3", "--out", tmp_path / "new")
    assert code == 1
    assert "No space left" in err
    assert everything_of(run, [2])
    assert told(capsys, "forget", run, "--agents", "2,3", "--out", tmp_path / "new")["forgotten_accuracy"] < 0.2


# The audit


def lines(report):
    assert report["schema"] == SCHEMA
    for line in report["checks"]:
        assert line.keys() == {"name", "value", "threshold", "status", "note"}
        assert line["status"] in ("pass", "warn", "fail")
    worst = [line["status"] for line in report["checks"]]
    assert report["verdict"] == ("fail" if "fail" in worst else "warn" if "warn" in worst else "pass")
    return {line["name"]: line for line in report["checks"]}


def test_the_audit_of_a_retrained_model_passes(run, tmp_path, capsys):
    told(capsys, "forget", run, "--agents", "2,3", "--method", "retrain", "--out", tmp_path / "new")
    report = told(capsys, "audit", tmp_path / "new")
    assert not [line for line in lines(report).values() if line["status"] == "fail"]
    assert json.loads((tmp_path / "new" / "audit" / "audit.json").read_text())["verdict"] == report["verdict"]
    page = (tmp_path / "new" / "audit" / "audit.html").read_text()
    assert "What this cannot show" in page
    assert str(report["provenance"]["particles_sha256_after"]) in page


def test_the_audit_notices_a_model_that_did_not_forget(run, tmp_path, capsys):
    """The old particles under the new run's name: all evidence must speak against it."""
    knew = load_state(run)
    new = tmp_path / "new"
    told(capsys, "forget", run, "--agents", "2,3", "--out", new, "--repair", "150")
    honest = lines(told(capsys, "audit", new))
    assert honest["forgotten: accuracy, off retrained"]["status"] == "pass"
    assert honest["purged"]["status"] == "pass"
    state = load_state(new)
    (checkpoint,) = (new / "checkpoints").glob("*.json")
    agents = {int(k): tuple(v) for k, v in json.loads(checkpoint.read_text())["agents"].items()}
    for file in (new / "checkpoints").glob("turn-*"):
        file.unlink()
    turns = TurnFiles(new).save(knew.turns, state.round)
    save(new, replace(state, particles=knew.particles, turns=knew.turns), 1.0, agents, turns)
    report = told(capsys, "audit", new)
    checks = lines(report)
    assert report["verdict"] == "fail"
    scores = ("accuracy", "NLL", "ECE", "Brier score")
    model = {f"{group}: {score}, off retrained" for group in ("forgotten", "test") for score in scores}
    model |= {"predictive KL, same seed", "predictive KL, other seeds", "membership, loss attack: off retrained"}
    for name in sorted(model):  # these are distances, and the honest erasure is nearer by every one of them
        assert checks[name]["status"] != "pass", name
        assert abs(checks[name]["value"]) > abs(honest[name]["value"]), name
    assert checks["relearn time"]["value"] == 0 < honest["relearn time"]["value"]
    # What it knows for certain is a fail. The membership attack and the ECE of so few examples only warn.
    weak = {"membership, loss attack: off retrained", "forgotten: ECE, off retrained", "test: ECE, off retrained"}
    for name in sorted((model - weak) | {"provenance", "relearn time", "window made anew"}):
        assert checks[name]["status"] == "fail", name
    # The files are as they were, and what those who stay have of the model need not speak.
    files = {"purged", "never scheduled again", "parameters touched"}
    assert {checks[name]["status"] for name in files} == {"pass"}
    staying = {f"retained: {score}, off retrained" for score in scores} | {"retained agents: worst change"}
    rest = {"provenance", "relearn time", "window made anew", "cost against retraining"}
    assert set(checks) == model | rest | files | staying


def test_the_audit_notices_what_was_left_behind(run, tmp_path, capsys):
    new = tmp_path / "new"
    told(capsys, "forget", run, "--agents", "2,3", "--out", new, "--keep-parent")
    report = told(capsys, "audit", new)
    assert lines(report)["purged"]["status"] == "warn"
    assert report["purged"]["kept_parent"] is True
    # With a parent that was kept, other methods can be tried on the same request.
    other = told(capsys, "forget", run, "--agents", "2,3", "--method", "forget-svgd", "--out", tmp_path / "other")
    assert other["rounds"] == 20
    left = tmp_path / "other" / "agents" / "agent-3"
    left.mkdir(parents=True)
    (left / "copy.safetensors").write_bytes(b"x")
    checks = lines(told(capsys, "audit", tmp_path / "other"))
    assert checks["purged"]["status"] == "fail"
    assert "copy.safetensors" in checks["purged"]["note"]


@pytest.mark.filterwarnings("ignore")
def test_a_hostile_config_cannot_have_another_run_purged(run, tmp_path, capsys):
    """The new run's lineage names its parent; a parent that knows of no request is left alone."""
    new, victim = tmp_path / "new", Path(shutil.copytree(run, tmp_path / "victim"))
    told(capsys, "forget", run, "--agents", "2", "--out", new, "--repair", "18")
    for name in ("lineage.json", "journal.jsonl"):
        text = (new / name).read_text().replace(str(run), str(victim))
        (new / name).write_text("\n".join(line for line in text.splitlines() if "erasure done" not in line) + "\n")
    there = sorted(victim.rglob("*"))
    told(capsys, "resume", new)
    assert sorted(path for path in victim.rglob("*") if path.name != "lock") == [p for p in there if p.name != "lock"]


@pytest.mark.parametrize("link", ["agents", "checkpoints", "frames/agent-2"])
def test_links_are_refused_before_anything_is_written(run, tmp_path, capsys, link):
    outside = tmp_path / "outside"
    shutil.move(run / link, outside)
    (run / link).symlink_to(outside)
    (outside / "thesis.txt").write_text("precious")
    code, _, err = fedstein(capsys, "forget", run, "--agents", "2", "--out", tmp_path / "new")
    assert code == 2
    assert "is a link" in err
    assert (outside / "thesis.txt").read_text() == "precious"
    assert "erasure requested" not in (run / "journal.jsonl").read_text()


def test_a_link_that_came_later_is_not_followed(run, tmp_path):
    outside = tmp_path / "outside"
    shutil.move(run / "checkpoints", outside)
    (run / "checkpoints").symlink_to(outside)
    count = len(list(outside.iterdir()))
    purge(run, [2])
    assert len(list(outside.iterdir())) == count
    assert not (run / "checkpoints").exists()


def test_a_second_erasure_purges_the_models_that_an_audit_has_trained(run, tmp_path, capsys):
    told(capsys, "forget", run, "--agents", "2,3", "--out", tmp_path / "one")
    told(capsys, "audit", tmp_path / "one")
    told(capsys, "forget", tmp_path / "one", "--agents", "4", "--out", tmp_path / "two")
    assert not (tmp_path / "one" / "audit").exists()
    assert lines(told(capsys, "audit", tmp_path / "two"))["purged"]["status"] == "pass"


@pytest.mark.filterwarnings("ignore")
def test_a_parent_that_was_away_is_purged_when_it_is_back(run, tmp_path, capsys, monkeypatch):
    new = tmp_path / "new"
    with monkeypatch.context() as patch:
        patch.setattr("fedstein.runs.verbs.complete", lambda run: None)
        told(capsys, "forget", run, "--agents", "2", "--out", new, "--repair", "18")
    run.rename(tmp_path / "away")
    told(capsys, "resume", new)
    assert lines(told(capsys, "audit", new))["purged"]["status"] == "warn"
    (tmp_path / "away").rename(run)
    assert lines(told(capsys, "audit", new))["purged"]["status"] == "fail"
    told(capsys, "resume", new)
    assert not list((run / "checkpoints").glob("*"))
    assert lines(told(capsys, "audit", new))["purged"]["status"] == "pass"


@pytest.mark.parametrize("damage", ["metrics", "config", "inside", "too long", "other options"])
def test_what_cannot_be_finished_is_not_begun(run, tmp_path, capsys, damage):
    arguments = ["forget", run, "--agents", "2", "--out", tmp_path / "new"]
    if damage == "metrics":
        os.truncate(run / "metrics.jsonl", (run / "metrics.jsonl").stat().st_size - 30)
    elif damage == "config":
        text = (run / "config.toml").read_text()
        (run / "config.toml").write_text(text.replace("seed = 0", "seed = 5"))
    elif damage == "inside":
        arguments[-1] = run / "agents" / "agent-new"
    elif damage == "too long":
        arguments += ["--repair", "999999999999"]
    else:
        arguments += ["--unguarded"]
    before = (run / "journal.jsonl").read_bytes()
    code, _, err = fedstein(capsys, *arguments)
    assert code == 2, err
    assert (run / "journal.jsonl").read_bytes() == before
    assert not (tmp_path / "new").exists()


def test_the_same_place_with_other_options_is_another_request(run, tmp_path, capsys):
    arguments = ["forget", run, "--agents", "2", "--out", tmp_path / "new", "--repair", "18"]
    told(capsys, *arguments, "--subtract")
    code, _, err = fedstein(capsys, *arguments)
    assert code == 2
    assert "options" in err
    (tmp_path / "new" / "result.json").write_text("{")
    code, _, err = fedstein(capsys, *arguments, "--subtract", "--json")
    assert code == 2
    assert "writes it again" in err


@pytest.mark.filterwarnings("ignore")
def test_the_audit_tells_what_has_no_place_in_the_folders(run, tmp_path, capsys):
    new = tmp_path / "new"
    told(capsys, "forget", run, "--agents", "2,3", "--out", new, "--repair", "18")
    for strange in (run / "old.bin", run / "backup" / "a.bak", new / "checkpoints" / "round-000151.safetensors"):
        strange.parent.mkdir(exist_ok=True)
        strange.write_bytes(b"x")
        checks = lines(told(capsys, "audit", new))
        assert checks["purged"]["status"] == "fail"
        assert str(strange) in checks["purged"]["note"]
        strange.unlink()
        if strange.parent.name == "backup":
            strange.parent.rmdir()
    (new / "metrics.jsonl").unlink()
    checks = lines(told(capsys, "audit", new))
    assert checks["purged"]["status"] == "pass"
    assert checks["never scheduled again"]["status"] == "fail"
    text = (new / "lineage.json").read_text()
    assert '"start": 150' in text
    (new / "lineage.json").write_text(text.replace('"start": 150', '"start": 140'))
    assert lines(told(capsys, "audit", new))["provenance"]["status"] == "fail"


def test_the_full_audit_trains_shadow_models(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("fedstein.runs.audit.audit.TIERS", {"quick": (2, 0), "full": (2, 4)})
    train(tmp_path / "run", "model.hidden=[8]", "pretrain.rounds=5", "rounds=30")
    capsys.readouterr()
    told(capsys, "forget", tmp_path / "run", "--agents", "2,3", "--out", tmp_path / "new")
    report = told(capsys, "audit", tmp_path / "new", "--tier", "full")
    checks = lines(report)
    assert report["likelihood_ratio_attack"]["shadow_models"] == 4
    assert "membership, likelihood ratio: off 0.5" in checks
    assert checks["parameters touched"]["status"] == "warn"
    assert report["parameters"] == {"touched": 90, "of": 610}
    assert "features retrained as well: KL" in checks


def test_problems_with_a_known_posterior_can_be_audited(tmp_path, capsys):
    sets = ["data.name=synthetic-gaussian", "data.agents=4", "method.factor=linear", "method.stiffness=1.0",
            "method.step_size=0.3", "recording.escrow=true", "rounds=150", "threads=1"]  # fmt: skip
    arguments = [part for line in sets for part in ("--set", line)]
    told(capsys, "train", *arguments, "--out", tmp_path / "run")
    told(capsys, "forget", tmp_path / "run", "--agents", "0", "--out", tmp_path / "new", "--repair", "100")
    checks = lines(told(capsys, "audit", tmp_path / "new"))
    assert checks["posterior mean error"]["status"] == "pass"


def test_a_kept_parent_can_be_asked_again_and_for_another_uplink(run, tmp_path, capsys):
    for sharing in ("1.0", "0.25"):
        out = tmp_path / f"sharing-{sharing}"
        told(capsys, "forget", run, "--agents", "2,3", "--method", "forget-svgd", "--rounds", "2", "--keep-parent",
             "--set", f"uplink.sharing={sharing}", "--out", out)  # fmt: skip
        assert load_run_config(out).uplink.sharing == float(sharing)
    done = [event for event in read_journal(run) if event["event"] == "erasure done"]
    assert [event["out"] for event in done] == [str(tmp_path / "sharing-1.0"), str(tmp_path / "sharing-0.25")]


def test_the_method_of_an_erasure_is_the_runs(run, tmp_path, capsys):
    before = read_all(run)
    code, _, err = fedstein(
        capsys, "forget", run, "--agents", "2", "--set", "method.particles=2", "--out", tmp_path / "n"
    )
    assert code == 2
    assert "must be of uplink, posterior, evaluation or recording" in err
    assert read_all(run) == before


def test_erasures_that_keep_the_parent_are_in_nobodys_way(tmp_path):
    words = ("data.name=digits", "data.agents=4", "model.hidden=[]", "rounds=2", "threads=1", "method.particles=2")
    train_config(config(None, *words), tmp_path / "run")
    for name in ("one", "two"):  # neither is ever done
        ask(tmp_path / "run", [1], "retrain", tmp_path / name, keep_parent=True)
    with pytest.raises(UserError, match=r"Another erasure of run .* is under way"):
        ask(tmp_path / "run", [2], "retrain", tmp_path / "three")


def test_without_its_lineage_nothing_of_an_erasure_is_published(tmp_path):
    words = ("data.name=digits", "data.agents=4", "model.hidden=[]", "rounds=2", "threads=1", "method.particles=2")
    run = train_config(config(None, *words), tmp_path / "run")
    after = run.forget([1], "retrain", tmp_path / "after", keep_parent=True)
    again = train_config(tmp_path / "after" / "config.toml", tmp_path / "again")
    assert again.lineage.erased == (1,)
    assert torch.equal(again.particles, after.particles)
    (tmp_path / "link.toml").symlink_to(tmp_path / "after" / "config.toml")
    assert train_config(tmp_path / "link.toml").lineage.erased == (1,)
    with pytest.raises(UserError, match="never had agents 1"):
        again.audit(progress=False)
    assert again.forget([2], "retrain", tmp_path / "more").lineage.erased == (1, 2)
    (tmp_path / "after" / "lineage.json").unlink()
    for work in (
        lambda: train_config(tmp_path / "after" / "config.toml"),
        lambda: load_particles(tmp_path / "after"),
        lambda: run.forget([1], "retrain", tmp_path / "after", keep_parent=True),
    ):
        with pytest.raises(UserError, match=r"lineage\.json of run .* is gone"):
            work()
