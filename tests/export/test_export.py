"""An export gives `predict`'s numbers without fedstein: as state_dicts, as a program, as ONNX, served; and says so."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import onnxruntime
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

import fedstein as fs
from fedstein.cli.main import main
from fedstein.data import load_digits
from fedstein.models.named import exported

NETS = Path(__file__).parents[1] / "nets.py"
FEW = (
    "data.name=digits", "data.agents=4", "threads=1", "rounds=4", "evaluation.every=4", "method.particles=3",
    "method.local_steps=4", "method.factor=linear", "recording.escrow=true", "uplink.budget=4.0d",
)  # fmt: skip


@pytest.fixture
def place(tmp_path, monkeypatch):
    shutil.copy(NETS, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("nets", None)


def train(*settings):
    return fs.train_config(fs.config(None, *FEW, *settings), "a", progress=False)


def dense():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


def own(name):
    return lambda: getattr(importlib.import_module("nets"), name)()


@pytest.mark.parametrize(
    ("settings", "make"),
    [
        (("model.hidden=[16]",), dense),
        (("model.hidden=[16]", "pretrain.rounds=2"), dense),
        (("model.module=nets:make_cnn",), own("make_cnn")),
        (("model.module=nets:Rows",), own("Rows")),
        (("model.module=nets:Backbone", "model.particles=['head.*']"), own("Backbone")),
    ],
)
def test_every_file_gives_the_numbers_of_predict(place, settings, make):
    run = train(*settings)
    x = load_digits().test.x[:50]
    said = run.predict(x)
    exported = run.export("out")
    assert exported.why is None
    assert exported.difference < 1e-6
    logits = []
    for number in range(3):
        network = make()
        network.load_state_dict(load_file(f"out/particle-{number}.safetensors"))
        logits.append(network.eval()(x))
    mixture = torch.stack(logits).softmax(-1).mean(0)
    torch.testing.assert_close(mixture.double(), said.probabilities.double(), atol=1e-6, rtol=0)
    program = torch.export.load("out/mixture.pt2").module()
    onnx = onnxruntime.InferenceSession("out/mixture.onnx")
    for inputs, rows in ((x, slice(None)), (x[:1], slice(1))):  # any number of them
        told = program(inputs)
        outside = dict(zip(exported.outputs, onnx.run(None, {"x": inputs.numpy()}), strict=True))
        for name in ("probabilities", "aleatoric", "epistemic"):
            expected = getattr(said, name)[rows].double()
            torch.testing.assert_close(told[name].double(), expected, atol=1e-6, rtol=0)
            torch.testing.assert_close(torch.from_numpy(outside[name]).double(), expected, atol=1e-5, rtol=0)


def test_numbers_are_exported_with_their_spread(place):
    torch.manual_seed(0)
    data = [(torch.randn(30, 3), torch.randn(30)) for _ in range(2)]
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    run = fs.train(
        module, data, likelihood=fs.Gaussian(variance="learnt", scale=40.0), rounds=2, out="a", progress=False,
        method=fs.DSVGD(particles=2, local_steps=2),
    )  # fmt: skip
    assert run.export("out").outputs == ["mean", "std", "aleatoric", "epistemic"]
    said, told = run.predict(data[0][0]), torch.export.load("out/mixture.pt2").module()(data[0][0])
    torch.testing.assert_close(told["mean"], said.mean, atol=1e-5, rtol=1e-6)
    torch.testing.assert_close(told["std"], said.std, atol=1e-5, rtol=1e-6)


def test_it_is_served_with_torch_alone(place):
    run = train("model.hidden=[16]")
    exported = run.export("out")
    served = Path("out/serve.py").read_text()
    assert set(re.findall(r"^(?:import|from) (\w+)", served, re.MULTILINE)) <= {"json", "sys", "http", "torch"}
    code = [line for line in served.splitlines() if line.strip()]
    assert len(code) <= 18
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, "serve.py", "mixture.pt2", str(port)], cwd=exported.folder)
    try:
        x = load_digits().test.x[:3]
        asked = urllib.request.Request(f"http://127.0.0.1:{port}", json.dumps({"x": x.tolist()}).encode())
        for _ in range(300):
            try:
                with urllib.request.urlopen(asked, timeout=10) as answer:
                    told = json.load(answer)
                break
            except OSError:
                time.sleep(0.2)
        torch.testing.assert_close(
            torch.tensor(told["probabilities"]).double(), run.predict(x).probabilities.double(), atol=1e-6, rtol=0
        )
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(urllib.request.Request(asked.full_url, b'{"x": "text"}'), timeout=10)
    finally:
        process.kill()
        process.wait()


def test_the_card_says_what_was_done_and_nothing_of_this_machine(place):
    run = train("model.hidden=[16]")
    after = run.forget([2], repair=3, out="b", progress=False)
    with pytest.raises(fs.UserError, match="were purged"):
        fs.open("a", careful=False).export("out")
    after.audit(progress=False)
    after.export("out")
    text = Path("out/MODEL_CARD.md").read_text()
    for words in ("digits", "agents 2 forgotten by take-back", "Budget", "ece", "not differentially private"):
        assert words in text
    with safe_open("out/particle-0.safetensors", "pt") as file:
        about = file.metadata()
    assert about["data.name"] == "digits"
    # What is learnt from these weights later knows by this what they are of.
    assert exported("out/particle-0.safetensors") == about["model.particles_sha256"]
    assert about["erasures.1"].startswith("agents 2 forgotten")
    assert int(about["budget.largest_upload_bits"]) <= int(about["budget.bits_an_upload"])
    for file in Path("out").iterdir():
        assert str(place).encode() not in file.read_bytes(), file


def test_what_cannot_be_traced_is_left_out_and_told(place):
    class Deciding(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            return self.layer(x) if float(x.sum()) > 0 else -self.layer(x)

    data = [(torch.ones(20, 3), torch.arange(20) % 2)]
    few = {"rounds": 1, "progress": False, "method": fs.DSVGD(particles=2, local_steps=1)}
    exported = fs.train(Deciding(), data, out="a", **few).export("out")
    assert exported.program is None
    assert "torch.where" in exported.why
    assert sorted(file.name for file in exported.files) == [
        "MODEL_CARD.md", "particle-0.safetensors", "particle-1.safetensors",
    ]  # fmt: skip


def test_the_command_and_its_refusals(place, monkeypatch, capsys):
    run = train("model.hidden=[16]")
    words = [sys.executable, "-m", "fedstein", "export", "a", "out", "--json"]
    table = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert table["particles"] == 3
    assert table["difference"] < 1e-6
    assert "mixture.onnx" in table["files"]
    for words, said in (
        (("a", "out"), "has files in it"),
        (("a", "a/out"), "outside of the run folder"),
        (("a", "nets.py"), "Got the file"),
        (("nowhere", "x"), "nowhere"),
    ):
        monkeypatch.setattr(sys, "argv", ["fedstein", "export", *words])
        with pytest.raises(SystemExit) as end:
            main()
        error = capsys.readouterr().err
        assert (end.value.code, "Traceback" in error) == (2, False)
        assert said in error
    with pytest.raises(fs.UserError, match="folder"):
        run.export(3)
    assert not list(Path().glob(".*part"))
