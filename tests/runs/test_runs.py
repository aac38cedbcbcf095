"""Run folders: the same bits after any stop, and clear words for every fault."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import tomli_w
import torch

import fedstein as fs
from fedstein.errors import RunError, UserError
from fedstein.protocol.server import start
from fedstein.runs.evaluation import load_run
from fedstein.runs.folder import load_checkpoint, load_particles, load_state
from fedstein.runs.problem import build_problem
from fedstein.runs.recorder import Recorder
from fedstein.runs.verbs import fit_config
from fedstein.settings import make_config
from fedstein.store import agent_files, checkpoint_rounds, in_use, read_journal, read_metrics

SETTINGS = [
    "data.name=digits", "data.agents=4", "data.examples=60", "model.hidden=[8]", "method.particles=3",
    "method.factor=linear", "method.local_steps=2", "uplink.budget=1d", "uplink.feedback=true", "rounds=20",
    "recording.checkpoint_every=3", "evaluation.every=5", "threads=1",
]  # fmt: skip


def train(path, *more, until=None):
    """A run folder, trained as the command line does it, up to `until` rounds and then left as a kill leaves it."""
    config = make_config(overrides=[*SETTINGS, *more])
    problem = build_problem(config)
    run = Recorder.create(path, config)
    try:
        state = start(problem.task, config.method, config.seed)
        run.save(state)
        short = config if until is None else config.model_copy(update={"rounds": until})
        trained = fit_config(short, problem=problem, state=state, watchers=[run], note=run.note)
        if until is None:
            run.finish({})
    finally:
        run.close()
    return trained


def go_on(path, rounds=None):
    run, state = Recorder.resume(path, rounds)
    with run:
        trained = fit_config(run.config, state=state, watchers=[run], note=run.note)
        run.finish({})
    return trained


def lines(path):
    return (path / "metrics.jsonl").read_text()


def same(one, other):
    assert torch.equal(load_particles(one), load_particles(other))
    assert lines(one) == lines(other)
    first, second = load_state(one), load_state(other)
    assert first.totals == second.totals
    assert set(first.memories) == set(second.memories)
    for agent in first.memories:
        for name, value in first.memories[agent].items():
            assert torch.equal(value, second.memories[agent][name])
    same_turns(first.turns, second.turns)
    assert {file.name for file in (one / "checkpoints").iterdir()} == {
        file.name for file in (other / "checkpoints").iterdir()
    }


def same_turns(one, other):
    assert (one.count, one.visits, one.first, one.rounds) == (other.count, other.visits, other.first, other.rounds)
    assert (one.mean is None) == (other.mean is None)
    assert one.mean is None or torch.equal(one.mean, other.mean)
    assert [(turn.first, turn.last) for turn in one.whole] == [(turn.first, turn.last) for turn in other.whole]
    for turn, again in zip(one.whole, other.whole, strict=True):
        assert torch.equal(turn.mean(), again.mean())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "run"
    train(path)
    return path


@pytest.mark.parametrize("until", [1, 3, 7, 19])
def test_a_run_goes_on_as_if_it_had_not_stopped(tmp_path, whole, until):
    train(tmp_path / "run", until=until)
    assert checkpoint_rounds(tmp_path / "run")[-1] == until // 3 * 3
    go_on(tmp_path / "run")
    # The stopped run was evaluated at its last round only because it believed that to be the end.
    kept = [{**line, "uploads": 0} for line in read_metrics(tmp_path / "run")]
    assert [line["round"] for line in kept] == list(range(1, 21))
    assert torch.equal(load_particles(tmp_path / "run"), load_particles(whole))
    if until % 5 == 0 or until % 3:
        same(tmp_path / "run", whole)


@pytest.mark.parametrize(
    "options",
    [["--kills", "20"], ["--writes", "--rounds", "4", "--step", "3"], ["--forget", "--rounds", "4", "--step", "11"]],
    ids=["random", "writes", "forget"],
)
def test_killed_again_and_again(options):
    """`make test-long` does all of them, and `make kill` more, with a new process each time."""
    script = Path(__file__).parent / "kills.py"
    done = subprocess.run([sys.executable, script, *options], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    assert "all as if left alone" in done.stdout


def test_a_finished_run_can_be_extended(tmp_path, whole):
    train(tmp_path / "run", "rounds=10")
    go_on(tmp_path / "run", 20)
    same(tmp_path / "run", whole)
    assert "rounds = 20" in (tmp_path / "run" / "config.toml").read_text()
    assert [event["event"] for event in read_journal(tmp_path / "run") if event["event"] == "extended"] == ["extended"]
    with pytest.raises(UserError, match="at least the 20 that are done"):
        Recorder.resume(tmp_path / "run", 7)
    edit(tmp_path / "run" / "config.toml", "rounds = 20", "rounds = 30")
    with pytest.raises(UserError, match="rounds: 20 -> 30"):
        Recorder.resume(tmp_path / "run")


def test_an_extension_that_was_cut_short_is_finished(tmp_path, whole):
    train(tmp_path / "run", "rounds=10")
    before = (tmp_path / "run" / "config.toml").read_text()
    run, _ = Recorder.resume(tmp_path / "run", 20)
    run.close()
    (tmp_path / "run" / "config.toml").write_text(before)  # killed between the journal and the config
    go_on(tmp_path / "run")
    same(tmp_path / "run", whole)


def test_a_finished_run_has_nothing_left_to_do(tmp_path, whole):
    shutil.copytree(whole, tmp_path / "run")
    go_on(tmp_path / "run")
    same(tmp_path / "run", whole)


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_an_edited_config_is_refused_with_the_difference(tmp_path):
    train(tmp_path / "run", until=7)
    edit(tmp_path / "run" / "config.toml", "local_steps = 2", "local_steps = 4")
    with pytest.raises(UserError, match=r"method\.local_steps: 2 -> 4"):
        Recorder.resume(tmp_path / "run")
    edit(tmp_path / "run" / "config.toml", "local_steps = 4", "local_steps = 2")
    Recorder.resume(tmp_path / "run")[0].close()


def test_a_run_from_before_there_was_a_setting_goes_on(tmp_path, whole):
    """Neither its config nor its journal has the setting: that is no edit."""
    run = tmp_path / "run"
    train(run, until=7)
    newer = {"model": "args", "prior": "spread", "recording": "escrow"}
    table = tomllib.loads((run / "config.toml").read_text())
    first, *rest = (run / "journal.jsonl").read_text().splitlines()
    began = json.loads(first)
    for section, key in newer.items():
        del table[section][key], began["config"][section][key]
    (run / "config.toml").write_text(tomli_w.dumps(table))
    (run / "journal.jsonl").write_text("\n".join([json.dumps(began), *rest]) + "\n")
    go_on(run)
    same(run, whole)
    edit(run / "config.toml", "local_steps = 2", "local_steps = 4")
    with pytest.raises(UserError, match=r"method\.local_steps: 2 -> 4"):
        Recorder.resume(run)


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("damage", [flip, cut, Path.unlink])
@pytest.mark.parametrize("name", ["checkpoints/round-000015.json", "checkpoints/round-000015.safetensors",
                                  "agents/agent-1/round-000015.safetensors"])  # fmt: skip
def test_a_damaged_checkpoint_is_left_for_the_one_before(tmp_path, whole, name, damage):
    path = tmp_path / "run"
    train(path, until=16)
    damage(path / name)
    if name.endswith("15.json") and damage is Path.unlink:
        go_on(path)  # a checkpoint without its JSON is none: nothing to warn of
    else:
        with pytest.warns(UserWarning, match="Falling back to the checkpoint before"):
            go_on(path)
        assert any(event["event"] == "damaged" for event in read_journal(path))
    assert next(event["round"] for event in read_journal(path) if event["event"] == "resumed") == 12
    same(path, whole)


def test_metrics_that_lost_lines_are_made_again(tmp_path, whole):
    train(tmp_path / "run", until=16)
    kept = lines(tmp_path / "run").splitlines(keepends=True)
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(kept[:13]) + kept[13][:20])
    with pytest.warns(UserWarning, match=r"metrics.jsonl ends before round 15"):
        go_on(tmp_path / "run")
    same(tmp_path / "run", whole)


def test_no_checkpoint_left(tmp_path):
    train(tmp_path / "run", until=16)
    for path in (tmp_path / "run" / "checkpoints").glob("*.safetensors"):
        cut(path)
    with (
        pytest.raises(UserError, match="No checkpoint"),
        pytest.warns(UserWarning, match="damaged"),
    ):
        Recorder.resume(tmp_path / "run")
    with (
        pytest.raises(UserError, match="each has lost a file"),
        pytest.warns(UserWarning, match="damaged"),
    ):
        load_particles(tmp_path / "run")


def test_stopped_before_the_first_checkpoint(tmp_path, whole):
    config = make_config(overrides=SETTINGS)
    Recorder.create(tmp_path / "run", config).close()
    go_on(tmp_path / "run")
    same(tmp_path / "run", whole)


def test_readers_use_the_newest_whole_checkpoint(tmp_path):
    train(tmp_path / "run", until=16)
    flip(tmp_path / "run" / "checkpoints" / "round-000015.safetensors")
    with pytest.warns(UserWarning, match="Using the checkpoint before"):
        assert load_checkpoint(tmp_path / "run")[0].round == 12


def test_a_run_that_is_left_has_all_of_its_rounds(tmp_path):
    config = make_config(overrides=[*SETTINGS, "rounds=4"])
    with Recorder.create(tmp_path / "run", config) as run:
        fit_config(config, watchers=[run], note=run.note)
    assert load_checkpoint(tmp_path / "run")[0].round == 4
    assert list(read_journal(tmp_path / "run"))[-1]["reason"] == "closed"


def test_checkpoints_that_were_taken_away_are_missed(tmp_path):
    train(tmp_path / "run", until=7)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(UserError, match="No checkpoint"):
        Recorder.resume(tmp_path / "run")


@pytest.mark.parametrize("rounds", [0, -1, 10**24])
def test_rounds_that_are_none(tmp_path, whole, rounds):
    shutil.copytree(whole, tmp_path / "run")
    with pytest.raises(UserError, match="--rounds"):
        Recorder.resume(tmp_path / "run", rounds)
    Recorder.resume(tmp_path / "run")[0].close()


@pytest.mark.parametrize("rounds", ["many", 12.5, None, -5, True, 10**30])
def test_nonsense_in_the_journal_is_not_believed(tmp_path, whole, rounds):
    shutil.copytree(whole, tmp_path / "run")
    with (tmp_path / "run" / "journal.jsonl").open("a") as file:
        file.write(json.dumps({"event": "extended", "rounds": rounds}) + "\n" + "[" * 5000 + "\n")
    run, state = Recorder.resume(tmp_path / "run")
    run.close()
    assert (run.config.rounds, state.round) == (20, 20)


def test_readers_warn_of_an_edited_config(tmp_path, whole):
    shutil.copytree(whole, tmp_path / "run")
    edit(tmp_path / "run" / "config.toml", 'activation = "relu"', 'activation = "tanh"')
    with pytest.warns(UserWarning, match=r"edited since it began \(model.activation: relu -> tanh\)"):
        load_run(tmp_path / "run")


def test_threads_of_the_config_are_used_and_recorded(tmp_path):
    config = make_config(overrides=[*SETTINGS, "threads=1", "rounds=1"])
    torch.set_num_threads(2)
    try:
        with Recorder.create(tmp_path / "run", config) as run:
            fit_config(config, watchers=[run])
        assert torch.get_num_threads() == 1
        assert json.loads((tmp_path / "run" / "environment.json").read_text())["threads"] == 1
    finally:
        torch.set_num_threads(1)


def test_a_resume_with_nothing_to_do_adds_no_seconds(tmp_path, whole):
    shutil.copytree(whole, tmp_path / "run")
    before = load_checkpoint(tmp_path / "run")[0].seconds
    run, state = Recorder.resume(tmp_path / "run")
    with run:
        time.sleep(0.05)
        assert run.seconds == pytest.approx(before)
        fit_config(run.config, state=state, watchers=[run])
        run.finish({})
    assert load_checkpoint(tmp_path / "run")[0].seconds == before


def test_one_process_at_a_time(tmp_path):
    config = make_config(overrides=SETTINGS)
    with Recorder.create(tmp_path / "run", config):
        assert in_use(tmp_path / "run")
        done = subprocess.run(
            [sys.executable, "-m", "fedstein", "resume", tmp_path / "run"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert f"in use by process {os.getpid()}" in done.stderr
    assert not in_use(tmp_path / "run")


def test_only_the_last_checkpoints_are_kept(whole):
    assert checkpoint_rounds(whole) == [15, 18, 20]
    for agent in range(4):
        kept = sorted(path.name for path in (whole / "agents" / f"agent-{agent}").iterdir())
        assert 1 <= len(kept) <= 3


def test_the_journal_tells_every_event_in_order(whole):
    events = list(read_journal(whole))
    assert [event["event"] for event in events[:6]] == [
        "started", "checkpoint", "scheduled", "sent", "applied", "scheduled",
    ]  # fmt: skip
    assert events[-1]["event"] == "stopped"
    assert events[0]["config"]["method"]["factor"] == "linear"
    sent = [event["bits"] for event in events if event["event"] == "sent"]
    assert sum(sent) == load_checkpoint(whole)[0].totals.upload_bits


def test_memories_need_not_fit_into_memory(tmp_path, whole, monkeypatch):
    monkeypatch.setattr(agent_files, "MEMORY", 3000)  # bytes: less than one agent's
    resident = []

    class Weigh:
        def after_round(self, state, told):
            resident.append(sum(kept.bytes for kept in state.memories.slots.values()))

    config = make_config(overrides=SETTINGS)
    with Recorder.create(tmp_path / "run", config) as run:
        fit_config(config, watchers=[run, Weigh()], note=run.note)
        run.finish({})
    assert max(resident) == 0
    same(tmp_path / "run", whole)


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of 1 MiB."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", path], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("mounting a file system needs root")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def remount(path, options):
    subprocess.run(["mount", "-o", f"remount,{options}", path], check=True)


def test_a_full_disk_loses_nothing(small_disk, tmp_path, whole):
    (small_disk / "filler").write_bytes(bytes(900_000))
    with pytest.raises(RunError, match=r"No space left on device.*fedstein resume"):
        train(small_disk / "run")
    with pytest.raises(RunError, match="No space left"):
        go_on(small_disk / "run")
    (small_disk / "filler").unlink()
    go_on(small_disk / "run")
    same(small_disk / "run", whole)


def test_a_folder_that_cannot_be_written(small_disk, whole):
    shutil.copytree(whole, small_disk / "run")
    remount(small_disk, "ro")
    with pytest.raises(RunError, match="Read-only file system"):
        Recorder.resume(small_disk / "run", 30)
    with pytest.raises(UserError, match="Cannot make the run folder"):
        Recorder.create(small_disk / "other", make_config(overrides=SETTINGS))
    assert torch.equal(load_particles(small_disk / "run"), load_particles(whole))  # reading needs no writing
    remount(small_disk, "rw")


def test_a_limit_on_file_sizes_is_reported_too(tmp_path):
    """EFBIG, which needs no root."""
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000)); "
        "from fedstein.cli.main import main; main()"
    )
    arguments = [part for setting in SETTINGS for part in ("--set", setting)]
    done = subprocess.run(
        [sys.executable, "-c", script, "train", "--out", tmp_path / "run", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_and_resume_on_the_command_line(tmp_path):
    """What a person does: start, stop, go on; the second run is left alone."""
    arguments = [part for setting in [*SETTINGS, "rounds=400"] for part in ("--set", setting)]
    command = [sys.executable, "-m", "fedstein"]
    for name in ("stopped", "alone"):
        process = subprocess.Popen(
            [*command, "train", "--out", name, "--json", *arguments],
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        if name == "stopped":
            deadline = time.monotonic() + 120
            metrics = tmp_path / name / "metrics.jsonl"
            while not (metrics.exists() and metrics.stat().st_size > 2000) and time.monotonic() < deadline:
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
        out, error = process.communicate(timeout=120)
        assert process.returncode == (130 if name == "stopped" else 0), error
        assert json.loads(out)["interrupted"] == (name == "stopped")
    done = subprocess.run([*command, "resume", "stopped", "--json"], cwd=tmp_path, capture_output=True, check=True)
    alone = json.loads((tmp_path / "alone" / "result.json").read_text())
    for name in ("accuracy", "nll", "total_upload_bits", "max_upload_bits", "kept", "rounds"):
        assert json.loads(done.stdout)[name] == alone[name]
    same(tmp_path / "stopped", tmp_path / "alone")


def test_a_network_that_was_never_trained_is_not_served(tmp_path):
    """Whose only other checkpoint is that of round 0."""
    config = make_config(overrides=[*SETTINGS, "rounds=12", "recording.checkpoint_every=12"])
    run = fs.train_config(config, tmp_path / "a", progress=False)
    max((run.path / "checkpoints").glob("turn-*.safetensors")).unlink()
    with (
        pytest.raises(UserError, match="after round 0 can be used"),
        pytest.warns(UserWarning, match="Using the checkpoint before"),
    ):
        fs.open(run.path).evaluate()
    with pytest.warns(UserWarning, match="checkpoint"):
        again = fs.open(run.path).resume(progress=False)
    assert again.rounds == 12
    assert torch.equal(again.particles, run.particles)
