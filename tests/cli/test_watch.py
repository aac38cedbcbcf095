"""`fedstein watch` on a finished, a stopped and a running run, in a real terminal."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
import threading
import time

import pytest

from fedstein.runs.verbs import train
from fedstein.settings import make_config

SMALL = ["data.name=digits", "data.agents=3", "method.particles=2", "uplink.budget=1d", "evaluation.every=2",
         "data.examples=40"]  # fmt: skip
FEDSTEIN = [sys.executable, "-m", "fedstein"]


def arguments(*more):
    return [part for setting in (*SMALL, *more) for part in ("--set", setting)]


def collect(terminal, parts):
    """Read a terminal as it is written to: one that nobody reads blocks the writer."""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # the other side has ended
            return
        if not part:
            return
        parts.append(part)


@pytest.fixture
def finished(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(make_config(overrides=[*SMALL, "rounds=8"]), tmp_path_factory.mktemp("watched") / "run").path


@pytest.mark.usefixtures("finished")
def test_a_finished_run_is_shown_once(tmp_path):
    done = subprocess.run([*FEDSTEIN, "watch", "run"], cwd=tmp_path, capture_output=True, text=True, check=True)
    for words in ("finished", "round 8 of 8", "accuracy", "ECE", "8 uploads", "budget 1d", "3 seen"):
        assert words in done.stdout
    done = subprocess.run([*FEDSTEIN, "watch", "run", "--json"], cwd=tmp_path, capture_output=True, check=True)
    facts = json.loads(done.stdout)
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert facts["status"] == "finished"
    assert (facts["round"], facts["accuracy"], facts["upload_bits"]) == (8, last["accuracy"], last["total_upload_bits"])
    done = subprocess.run([*FEDSTEIN, "watch", "nothing"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "not a run folder" in done.stderr


def test_a_running_run_is_followed_until_it_ends(tmp_path):
    training = subprocess.Popen([*FEDSTEIN, "train", "--out", "run", "--json", *arguments("rounds=100000")],
                                cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        metrics, deadline = tmp_path / "run" / "metrics.jsonl", time.monotonic() + 120
        while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.05)
        leader, follower = pty.openpty()
        watching = subprocess.Popen([*FEDSTEIN, "watch", "run", "--every", "0.2"], cwd=tmp_path, stdout=follower,
                                    stderr=follower, env=os.environ | {"TERM": "xterm", "COLUMNS": "90"})  # fmt: skip
        os.close(follower)
        parts = []
        reading = threading.Thread(target=collect, args=(leader, parts), daemon=True)
        reading.start()
        while b"rounds a second" not in b"".join(parts) and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(2)
        assert watching.poll() is None
        training.terminate()
        assert training.wait(60) == 130
        assert watching.wait(60) == 0
        reading.join(10)
        os.close(leader)
        text = b"".join(parts).decode()
    finally:
        training.kill()
    assert "running" in text
    assert "rounds a second" in text
    assert "stopped" in text
    assert "▁" in text or "█" in text
    assert len({line for line in text.splitlines() if "round " in line}) > 3


@pytest.mark.usefixtures("finished")
@pytest.mark.parametrize("name", ["metrics.jsonl", "journal.jsonl"])
def test_files_with_nonsense_do_not_stop_it(tmp_path, name):
    with (tmp_path / "run" / name).open("ab") as file:
        file.write(b'\xff\xfe\n[1, 2]\n{"event": "scheduled", "time": 3}\n{"rou')
    done = subprocess.run([*FEDSTEIN, "watch", "run"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
