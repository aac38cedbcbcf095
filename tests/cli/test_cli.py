"""The command line as a user has it: exit codes and output, of processes of its own or inside this one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from fedstein.cli.main import main

SMALL = ["--set", "data.name=digits", "--set", "rounds=6", "--set", "method.particles=3"]


def fedstein(*arguments, cwd, **environment):
    return subprocess.run(
        [sys.executable, "-m", "fedstein", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | environment,
        check=False,
    )


@pytest.fixture
def inside(monkeypatch, capsys):
    """The command in this process, which has everything imported: two seconds less for each."""

    def call(*arguments, cwd):
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["fedstein", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        return subprocess.CompletedProcess(arguments, end.value.code, *capsys.readouterr())

    return call


def one_object(done):
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    result = one_object(fedstein("train", *SMALL, "--out", "run", "--json", cwd=folder))
    return folder, result


def test_train_prints_what_scripts_rely_on(run):
    folder, result = run
    assert result["run"] == "run"
    assert result["rounds"] == 6
    assert result["ece_bins"] == 15
    assert result["seconds"] > 0
    assert all(result[name] >= 0 for name in ("accuracy", "ece", "nll", "brier"))
    names = {path.name for path in (folder / "run").iterdir()}
    assert names == {
        "checkpoints", "config.toml", "environment.json", "journal.jsonl", "lock", "metrics.jsonl", "result.json",
    }  # fmt: skip
    assert json.loads((folder / "run" / "result.json").read_text()) == result


def test_evaluate_gives_the_same_metrics(run):
    folder, result = run
    again = one_object(fedstein("evaluate", "run", "--json", cwd=folder))
    for name in ("accuracy", "ece", "ece_bins", "nll", "brier", "class_accuracy"):
        assert again[name] == pytest.approx(result[name], rel=1e-6)


def test_predict_and_ood(run, inside):
    folder, _ = run
    x = np.random.default_rng(0).random((5, 64))
    np.save(folder / "x.npy", x)
    summary = one_object(fedstein("predict", "run", "--input", "x.npy", "--output", "p.npz", "--json", cwd=folder))
    assert summary["inputs"] == 5
    with np.load(folder / "p.npz", allow_pickle=False) as file:
        assert file["probabilities"].shape == (5, 10)
        np.testing.assert_allclose(file["probabilities"].sum(1), 1, rtol=1e-5)
        np.testing.assert_array_equal(file["label"], file["probabilities"].argmax(1))
        assert {"confidence", "aleatoric", "epistemic"} <= set(file)
    metrics = one_object(inside("evaluate", "run", "--ood", "x.npy", "--json", cwd=folder))
    assert 0 <= metrics["ood_auroc_epistemic"] <= 1


def test_the_other_verbs(run, inside):
    folder, _ = run
    methods = one_object(inside("methods", "--json", cwd=folder))["methods"]
    assert {"dsvgd", "fedavg", "svgd", "dsgld"} <= {method["name"] for method in methods}
    assert one_object(inside("data", "list", "--json", cwd=folder))["sources"]
    got = one_object(inside("data", "get", "fashion-mnist", "--json", cwd=folder))
    assert got["how"] in ("found", "debian", "https")
    for arguments in (["methods"], ["data", "list"], ["evaluate", "run"], ["train", *SMALL], ["--version"]):
        done = inside(*arguments, cwd=folder)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["synthetic-gaussian", "synthetic-mixture"])
def test_synthetic_problems_report_their_exact_errors(tmp_path, name, inside):
    more = ["--set", f"data.name={name}", "--set", "rounds=2", "--set", "method.factor=kde"]
    result = one_object(inside("train", *more, "--json", cwd=tmp_path))
    assert result["accuracy"] is None
    assert ("total_variation" in result) == (name == "synthetic-mixture")
    assert inside("predict", result["run"], "--input", "x", "--output", "y", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--set", "data.nam=x"], "Did you mean 'name'?"),
        (["train", "missing.toml"], "missing.toml"),
        (["train", *SMALL, "--out", "run"], "exists already"),
        (["train", *SMALL, "--out", "/proc/no/such"], "Cannot make the run folder"),
        (["train", "--set", "data.path=."], "Fashion-MNIST is not in"),
        (["train", "--set", "data.name=npz"], "data.path"),
        (["train", *SMALL, "--set", "data.agents=5000"], "data.agents"),
        (["train", *SMALL, "--set", "evaluation.split=validation"], "data.validation"),
        (["train", *SMALL, "--set", "data.partition=indices"], "data.indices"),
        (["train", *SMALL, "--set", "model.features=run"], "model.hidden"),
        (["train", "--nonsense"], "nonsense"),
        (["evaluate", "nowhere"], "is not a run folder"),
        (["predict", "run", "--input", "missing.npy", "--output", "p.npz"], "missing.npy"),
        (["predict", "run", "--input", "bad.npy", "--output", "p.npz"], "with 64 numbers a row"),
        (["predict", "run", "--input", "nan.npy", "--output", "p.npz"], "NaN"),
        (["data", "get", "fashion-mnst"], "Did you mean 'fashion-mnist'?"),
    ],
)
def test_mistakes_exit_with_2_and_say_what(run, arguments, message, inside):
    folder, _ = run
    np.save(folder / "bad.npy", np.zeros((2, 3)))
    np.save(folder / "nan.npy", np.full((2, 64), np.nan))
    if "model.features=run" in arguments:
        arguments = [*arguments, "--set", "model.hidden=[7]"]
    done = inside(*arguments, cwd=folder)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_damaged_runs_are_refused(run, tmp_path):
    folder, _ = run
    for name, content in (("checkpoints/*.safetensors", b"\xff" * 100), ("config.toml", b"seed = \xff")):
        broken = tmp_path / name[:5]
        shutil.copytree(folder / "run", broken)
        for file in broken.glob(name):
            file.write_bytes(content)
        done = fedstein("evaluate", broken, cwd=tmp_path)
        assert done.returncode == 2
        assert "damaged" in done.stderr


def test_divergence_exits_with_1_and_keeps_the_last_good_state(tmp_path, inside):
    more = ["--set", "method.step=gradient", "--set", "method.step_size=1e30", "--set", "method.name=fedavg"]
    done = fedstein("train", "--set", "data.name=digits", *more, "--out", "run", cwd=tmp_path)
    assert done.returncode == 1
    assert "round" in done.stderr
    assert "method.step_size" in done.stderr
    assert json.loads((tmp_path / "run" / "journal.jsonl").read_text().splitlines()[-1])["event"] == "stopped"
    kept = one_object(inside("evaluate", "run", "--json", cwd=tmp_path))
    assert kept["nll"] == pytest.approx(2.3, abs=0.3)  # particles as they began: it knows nothing of ten classes
    assert inside("resume", "run", cwd=tmp_path).returncode == 1  # and goes wrong again in the same place


def test_ctrl_c_ends_cleanly_and_keeps_what_was_learnt(tmp_path):
    arguments = ["train", "--set", "data.name=digits", "--set", "rounds=1000000", "--set", "evaluation.every=5"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fedstein", *arguments, "--out", "run", "--json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    metrics = tmp_path / "run" / "metrics.jsonl"
    while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=120)
    assert process.returncode == 130, error
    result = json.loads(out)
    assert result["interrupted"]
    again = one_object(fedstein("evaluate", "run", "--json", cwd=tmp_path))
    assert again["accuracy"] == result["accuracy"]
