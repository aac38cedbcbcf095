"""A real Flower deployment on loopback: TLS, keys, a process for everything; processes are killed by their ids.

All tests share one federation of three agents. Those that wait for heartbeats to lapse run with `make test-long`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fedstein.deploy.flower.keys import make_agent_key, make_certificates
from fedstein.runs.folder import load_particles
from fedstein.store import in_use, read_journal, read_metrics

NAMES = ("north", "south", "west")
SETTINGS = (
    "model.hidden=[]",
    "threads=1",
    "method.particles=3",
    "method.local_steps=2",
    "method.factor=linear",
    "uplink.budget=20.0d",
    "uplink.feedback=true",
    "uplink.record_frames=true",
    "schedule.agents_per_round=2",
    "evaluation.every=10",
)
campaign = pytest.mark.skipif("FEDSTEIN_LONG" not in os.environ, reason="make test-long runs it")


@pytest.fixture
def here(deployment):
    return deployment


def init(here, name, folder="server", *overrides):
    sets = [*SETTINGS, "data.name=folder", f"data.path={here.folder / folder}", *overrides]
    words = [word for setting in sets for word in ("--set", setting)]
    here.fedstein("flower", "init", name, "--agents", ",".join(NAMES), *words)
    return here.folder / f"{name}-run"


def local(here, name, rounds, *overrides):
    sets = [*SETTINGS, "data.name=folder", f"data.path={here.folder / 'data'}", "data.agents=3", f"rounds={rounds}"]
    sets += overrides
    here.fedstein("train", *(word for setting in sets for word in ("--set", setting)), "--out", name)
    return here.folder / name


def go(here, app, rounds, **settings):
    words = [f'set="rounds={rounds}"', *(f"{key}={value}" for key, value in settings.items())]
    return here.flwr("run", app, "trial", "--stream", "--run-config", " ".join(words), check=False)


class Going(threading.Thread):
    """`flwr run`, while the test does something else."""

    def __init__(self, *args, **settings):
        super().__init__(target=go, args=args, kwargs=settings, daemon=True)
        self.start()


def wait_until(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it has not happened in time")


def rounds_done(run):
    return sum(1 for _ in read_metrics(run)) if (run / "metrics.jsonl").is_file() else 0


def children(process, what):
    """The processes of a node, by what they are."""
    processes = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if parent == process and what in line:
            processes.append(int(place.name))
    return processes


def test_a_server_killed_in_the_middle_goes_on_to_the_same_particles(here):
    run = init(here, "first")
    Going(here, "first", 5)
    wait_until(lambda: rounds_done(run) >= 2)
    os.kill(int((run / "lock").read_text()), signal.SIGKILL)
    assert rounds_done(run) < 5
    said = go(here, "first", 5)  # at once: Flower itself takes a minute to notice that the first one is gone
    assert (run / "result.json").is_file(), said
    one = local(here, "first-one", 5)
    assert load_particles(run).equal(load_particles(one))
    assert (run / "metrics.jsonl").read_bytes() == (one / "metrics.jsonl").read_bytes()
    assert not (run / "agents").exists()
    for name in NAMES:
        assert list((here.folder / "state" / name).glob("*/memory-*.safetensors"))


def test_the_federation_forgets_an_agent_that_deletes_what_it_knew(here):
    """After the test above: the same run."""
    run, one = here.folder / "first-run", here.folder / "first-one"
    frames = [file.read_bytes() for file in (one / "frames" / "agent-1").iterdir()]
    assert len(frames) == 3
    more = ("--agents", "1", "--method", "take-back", "--by", "agent", "--rounds", "2", "--repair", "2", "--json")
    here.fedstein("forget", one, *more, "--out", "first-one-after")
    place = ("--flower", "first", "--superlink", "trial")
    refused = subprocess.run(
        [sys.executable, "-m", "fedstein", "forget", str(run), *more, "--out", "x"],
        cwd=here.folder,
        env=here.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 2
    assert "must name the app of the federation" in refused.stderr
    erased = json.loads(here.fedstein("forget", run, *more, "--agents", "south", "--out", "first-after", *place))
    assert erased["confirmed"] == [1]
    assert load_particles(here.folder / "first-after").equal(load_particles(here.folder / "first-one-after"))
    left = {file.name for file in (here.folder / "state" / "south").rglob("*") if file.is_file()}
    assert left == {"home.json", "lock", "executor.secret"}
    assert not list((here.folder / "first-run" / "checkpoints").glob("*"))
    assert not (run / "frames" / "agent-1").exists()
    here.fedstein("flower", "purge", "link.db")  # while the SuperLink is running
    database = b"".join(file.read_bytes() for file in here.folder.glob("link.db*"))
    for frame in frames:
        assert not any(frame[place : place + 100] in database for place in range(0, len(frame) - 100, 100))


def test_agents_run_the_networks_that_their_own_nodes_allow_and_no_others(here):
    run = init(here, "cnn", "server", "model.module=nets:make_cnn")
    said = go(here, "cnn", 3)
    assert (run / "result.json").is_file(), said
    assert load_particles(run).equal(load_particles(local(here, "cnn-one", 3, "model.module=nets:make_cnn")))
    init(here, "other", "server", "model.module=nets:make_other")
    said = go(here, "other", 3, retries=0)
    assert "does not run 'nets:make_other'" in said
    assert "fedstein flower node --module nets:make_other" in said
    assert not (here.folder / "other-run" / "result.json").exists()


def test_strangers_are_refused(here):
    make_agent_key(here.folder / "strange", "stranger")
    make_certificates(here.folder / "strange", ["localhost"])
    address = ["--superlink", f"127.0.0.1:{here.port}", "--isolation", "process", "--max-retries", "1"]
    trusted = ["--root-certificates", "keys/ca.crt"]
    other = ["--root-certificates", "strange/ca.crt", "--auth-supernode-private-key", "keys/south"]
    ways = {
        "unknown-key": [*trusted, "--auth-supernode-private-key", "strange/stranger"],
        "no-key": trusted,
        "no-tls": ["--insecure"],
        "other-ca": other,
    }
    for number, (name, words) in enumerate(ways.items()):
        here.start(name, ["flower-supernode", *address, "--port", str(40_000 + os.getpid() % 10_000 + number), *words])
    ended = {name: here.processes[name] for name in ways}
    try:
        wait_until(lambda: all(process.poll() is not None for process in ended.values()), 60)
    finally:
        for name, process in ended.items():
            process.kill()
            assert "SuperNode ID" not in (here.folder / f"{name}.log").read_text(), name


@campaign
def test_a_killed_superlink(here):
    run = init(here, "link")
    going = Going(here, "link", 5)
    wait_until(lambda: rounds_done(run) >= 2)
    here.processes["superlink"].kill()
    here.processes["superlink"].wait()
    going.join()
    here.start_link()
    wait_until(lambda: not in_use(run))  # the server's process outlives its SuperLink, and ends when it knows a new one
    said = go(here, "link", 5)
    assert (run / "result.json").is_file(), said
    assert load_particles(run).equal(load_particles(local(here, "link-one", 5)))


@campaign
@pytest.mark.parametrize("what", ["flower-supernode", "fedstein.deploy.flower.executor"])
def test_a_node_killed_in_the_middle_of_its_work_comes_back(here, what):
    name = f"node-{what[-4:]}"
    run = init(here, name)
    going = Going(here, name, 5)
    wait_until(lambda: rounds_done(run) >= 1)
    for process in children(here.processes["west"].pid, what):
        os.kill(process, signal.SIGKILL)
    going.join()
    assert (run / "result.json").is_file()
    assert load_particles(run).equal(load_particles(local(here, f"{name}-one", 5)))


@campaign
def test_an_agent_that_stays_away_stops_nobody(here):
    run = init(here, "away")
    here.processes["west"].terminate()
    here.processes["west"].wait()
    wait_until(lambda: True)
    time.sleep(60)  # until the SuperLink has noticed
    said = go(here, "away", 4, deadline=15.0)
    assert (run / "result.json").is_file(), said
    missed = [event["agent"] for event in read_journal(run) if event["event"] == "missed"]
    assert set(missed) == {2}
    assert {upload["agent"] for line in read_metrics(run) for upload in line["uploads"]} == {0, 1}
    here.start_node("west", here.folder / "data" / "agent-2.npz")
    go(here, "away", 4)


@campaign
def test_a_node_killed_during_its_erasure(here):
    run = init(here, "gone")
    said = go(here, "gone", 4)
    assert (run / "result.json").is_file(), said
    more = ("--agents", "2", "--method", "take-back", "--by", "agent", "--rounds", "3", "--repair", "2", "--json")
    after = here.folder / "gone-after"
    place = ("--out", "gone-after", "--flower", "gone", "--superlink", "trial")
    said = []
    going = threading.Thread(target=lambda: said.append(here.fedstein("forget", run, *more, *place, check=False)))
    going.start()
    wait_until(lambda: rounds_done(after) >= 5)
    for what in ("flower-supernode", "fedstein.deploy.flower.executor"):
        for process in children(here.processes["west"].pid, what):
            os.kill(process, signal.SIGKILL)
    going.join()
    assert json.loads(said[0])["confirmed"] == [2]
    one = local(here, "gone-one", 4)
    here.fedstein("forget", one, *more, "--out", "gone-one-after")
    assert load_particles(after).equal(load_particles(here.folder / "gone-one-after"))
