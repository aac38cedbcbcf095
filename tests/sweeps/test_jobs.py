"""Jobs and their steps: each a process of its own, whose end is told by type; trainings and erasures."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch

from fedstein.errors import UserError
from fedstein.protocol.state import State, Told
from fedstein.runs.folder import load_particles
from fedstein.runs.forget.complete import is_done
from fedstein.runs.stopping import StopAfterRound
from fedstein.runs.verbs import train
from fedstein.settings import make_config
from fedstein.store import load_lineage, read_metrics
from fedstein.sweeps import Ending, Forget, Job, Step, result_of, run_jobs
from fedstein.sweeps.jobs import do_job

SMALL = {
    "rounds": 3,
    "threads": 1,
    "data": {"name": "digits", "agents": 3},
    "model": {"hidden": []},
    "method": {"local_steps": 2},
}
LONG = SMALL | {"rounds": 4000, "evaluation": {"every": 4000}}
DIVERGING = SMALL | {"method": {"step": "gradient", "step_size": 1e30}}
FORGETFUL = SMALL | {"rounds": 20, "method": {"local_steps": 2, "factor": "linear"}, "recording": {"escrow": True}}


def instead(code):
    """Processes that do this instead of their step."""

    def start(arguments, **options):
        return subprocess.Popen([sys.executable, "-c", code], **options)

    return start


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def has_rounds(folder):
    metrics = folder / "metrics.jsonl"
    return metrics.is_file() and metrics.stat().st_size > 1000


def test_other_settings_in_the_same_folder_are_refused(tmp_path):
    config = make_config(SMALL)
    train(config, tmp_path / "run")
    other = config.model_copy(update={"rounds": 4})
    (tmp_path / "run" / "result.json").unlink()
    (outcome,) = run_jobs([Job("one", (Step(tmp_path / "run", other),))], 1)
    assert (outcome.status, outcome.kind) == ("failed", "refused")
    assert "rounds: 3 -> 4" in outcome.reason


def test_a_finished_run_of_other_settings_is_refused(tmp_path):
    config = make_config(SMALL)
    train(config, tmp_path / "run")
    (outcome,) = run_jobs([Job("one", (Step(tmp_path / "run", config.model_copy(update={"seed": 5})),))], 1)
    assert (outcome.status, outcome.kind) == ("failed", "refused")
    assert "seed: 0 -> 5" in outcome.reason


def test_a_run_that_was_killed_before_it_began_is_begun_again(tmp_path):
    (tmp_path / "run").mkdir()
    for name in ("lock", "environment.json", "config.toml.part"):
        (tmp_path / "run" / name).write_text("half")
    (outcome,) = run_jobs([Job("one", (Step(tmp_path / "run", make_config(SMALL)),))], 1)
    assert outcome.status == "finished", outcome.reason


def test_a_killed_process_is_a_failed_run(tmp_path):
    kill = instead(f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})")
    outcome = do_job(Job("one", (Step(tmp_path / "run", make_config(SMALL)),)), kill)
    assert (outcome.status, outcome.kind) == ("failed", "failed")
    assert "killed by signal 9 (SIGKILL)" in outcome.reason


def test_any_signal_is_told(tmp_path):
    kill = instead("import os; os.kill(os.getpid(), 35)")
    outcome = do_job(Job("one", (Step(tmp_path / "run", make_config(SMALL)),)), kill)
    assert (outcome.status, "killed by signal 35" in outcome.reason) == ("failed", True)


def test_a_process_without_a_line_leaves_its_last_words(tmp_path):
    job = Job("one", (Step(tmp_path / "run", make_config(SMALL)),))
    outcome = do_job(job, instead("raise MemoryError('no room')"))
    assert outcome.kind == "failed"
    assert "MemoryError: no room" in outcome.reason
    silent = do_job(job, instead("import sys; sys.exit(3)"))
    assert (silent.kind, silent.reason) == ("failed", "the process ended with exit code 3 and no words")
    for line in ('{"status": "splendid", "reason": ""}', '{"status": "finished"}', "[]", "finished"):
        assert do_job(job, instead(f"print('''{line}''')")).kind == "failed"
    assert do_job(job, instead('print("""a library\\n{"status": "refused", "reason": "so"}""")')).kind == "refused"


def test_a_real_run_that_is_killed_goes_on_to_the_same_end(tmp_path):
    """SIGKILL in the midst of its rounds takes nothing with it but the rounds since its last checkpoint."""
    config = make_config(SMALL | {"rounds": 600, "evaluation": {"every": 200}, "recording": {"checkpoint_every": 40}})
    job = Job("one", (Step(tmp_path / "run", config),))
    begun = []

    def start(*arguments, **options):
        begun.append(subprocess.Popen(*arguments, **options))
        return begun[-1]

    def kill():
        wait_for(lambda: has_rounds(tmp_path / "run"))
        begun[0].kill()

    killer = threading.Thread(target=kill)
    killer.start()
    outcome = do_job(job, start)
    killer.join()
    assert (outcome.status, outcome.kind) == ("failed", "failed")
    assert outcome.reason.endswith("killed by signal 9 (SIGKILL)")
    assert result_of(tmp_path / "run") is None
    assert 0 < job.done() < 600
    assert do_job(job).status == "finished"
    train(config, tmp_path / "alone")
    assert load_particles(tmp_path / "run").equal(load_particles(tmp_path / "alone"))
    assert list(read_metrics(tmp_path / "run")) == list(read_metrics(tmp_path / "alone"))


def test_a_divergence_is_told_by_type(tmp_path):
    step = Step(tmp_path / "bad", make_config(DIVERGING))
    (outcome,) = run_jobs([Job("one", (step,))], 1)
    assert (outcome.status, outcome.kind) == ("failed", "diverged")
    assert "no longer finite" in outcome.reason
    assert not step.finished()
    # The words of one on a stream are not one.
    may = Step(tmp_path / "words", make_config(SMALL), may_diverge=True)
    outcome = do_job(Job("two", (may,)), instead("raise SystemExit('The particles are no longer finite')"))
    assert (outcome.status, outcome.kind) == ("failed", "failed")


def test_only_a_divergence_is_let_pass(tmp_path):
    good = Step(tmp_path / "good", make_config(SMALL))
    (outcome,) = run_jobs([Job("one", (Step(tmp_path / "bad", make_config(DIVERGING), may_diverge=True), good))], 1)
    assert outcome.status == "finished"
    assert good.finished()
    missing = make_config(SMALL | {"data": {"name": "npz", "path": "nowhere.npz"}})
    (outcome,) = run_jobs([Job("two", (Step(tmp_path / "missing", missing, may_diverge=True), good))], 1)
    assert (outcome.status, outcome.kind) == ("failed", "refused")


def test_a_result_that_is_none_does_not_count(tmp_path):
    step = Step(tmp_path / "run", make_config(SMALL))
    train(step.work, step.folder)
    assert step.finished()
    whole = (tmp_path / "run" / "result.json").read_bytes()
    for damaged in (b"{", b'{"interrupted": false}', whole.replace(b'"rounds": 3', b'"rounds": 2')):
        (tmp_path / "run" / "result.json").write_bytes(damaged)
        assert not step.finished()
    (outcome,) = run_jobs([Job("one", (step,))], 1)
    assert outcome.status == "finished"
    assert step.finished()


def worker(text, **options):
    process = subprocess.Popen(
        [sys.executable, "-m", "fedstein.sweeps.work"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        **options,
    )
    process.stdin.write(text)
    process.stdin.close()
    process.stdin = None  # `communicate` shall not close it again
    return process


@pytest.fixture
def handlers():
    """Whoever handles signals now does so again after the test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_waits_for_the_round_and_the_second_does_not(number, capsys):
    state, told = State(1, torch.zeros(1, 1)), Told()
    stop = StopAfterRound(print)
    stop.after_round(state, told)
    signal.raise_signal(number)
    assert capsys.readouterr().out == "stopping after this round; once more to stop at once\n"
    with pytest.raises(KeyboardInterrupt):
        stop.after_round(state, told)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    # Before there is anything to keep, nobody waits.
    StopAfterRound(print, begun=lambda: False)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_process_of_a_step_stops_after_its_round_and_says_so_in_one_line(number, tmp_path):
    step = Step(tmp_path / "run", make_config(LONG))
    process = worker(step.to_json())
    wait_for(lambda: has_rounds(tmp_path / "run"))
    process.send_signal(number)
    out, words = process.communicate(timeout=60)
    assert process.returncode == 130, words
    assert "fedstein: stopping after this round; once more to stop at once" in words
    assert json.loads(out) == {"status": "interrupted", "reason": ""}
    result = result_of(tmp_path / "run")
    assert result is not None
    assert result["interrupted"]
    assert result["rounds"] == step.done() < 4000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must be one JSON object"),
        ("[]", "must be one JSON object"),
        ('{"folder": "x"}', "'train' or 'forget'"),
        ('{"folder": "x", "forget": {"agents": [1]}}', "'parent'"),
        ('{"folder": "x", "train": {"round": 3}}', "Did you mean 'rounds'?"),
    ],
)
def test_a_step_that_is_none_is_refused(text, words):
    with pytest.raises(UserError, match=re.escape(words)):
        Step.from_json(text)


def test_a_refusal_of_the_process_is_one_line(tmp_path):
    out, _ = (process := worker("[]", cwd=tmp_path)).communicate(timeout=60)
    assert process.returncode == 2
    ending = Ending.in_line(out)
    assert ending is not None
    assert ending.status == "refused"
    assert out.count("\n") == 1


def test_a_step_is_the_same_after_it_was_told(tmp_path):
    training = Step(tmp_path / "run", make_config(FORGETFUL))
    forget = Forget(
        tmp_path / "run", (1, 2), "forget-svgd", rounds=4, guarded=False, overrides=("uplink.common=false",)
    )
    for step in (training, Step(tmp_path / "without", forget)):
        assert Step.from_json(step.to_json()) == step


def erasing(place, **options):
    """A training, and an erasure that begins from it."""
    asked = {"agents": (1,), "method": "take-back", "repair": 3, "keep_parent": True} | options
    config = make_config(FORGETFUL)
    return (
        Step(place / "run", config, rounds=20),
        Step(place / "without", Forget(place / "run", **asked), rounds=3, inherited=20),
    )


def test_an_erasure_is_a_step_of_a_job(tmp_path):
    job = Job("one", erasing(tmp_path, overrides=("evaluation.every=1",)))
    assert [step.threads for step in job.steps] == [1, 1]
    assert job.so_far().status == "stopped"
    (outcome,) = run_jobs([job], 1)
    assert outcome.status == "finished", outcome.reason
    assert is_done(tmp_path / "without")
    newest = load_lineage(tmp_path / "without").newest
    assert (newest.agents, newest.method, newest.repair, newest.keep_parent) == ((1,), "take-back", 3, True)
    assert (job.rounds, job.done()) == (23, 23)
    assert job.so_far().status == "finished"
    # Again: nothing is done.
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    outcome = do_job(job, instead("raise SystemExit('this was done already')"))
    assert (outcome.status, outcome.seconds) == ("finished", 0.0)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before
    # Another erasure is refused in its folder, and so is a training.
    for options, words in (
        ({"agents": (2,)}, "agents: [1] -> [2]"),
        ({"repair": 4}, "repair: 3 -> 4"),
        ({"method": "retrain", "repair": None}, "method: take-back -> retrain"),
        ({"overrides": ("evaluation.every=2",)}, "evaluation.every: 1 -> 2"),
    ):
        outcome = do_job(Job("two", erasing(tmp_path, **options)))
        assert (outcome.status, outcome.kind) == ("failed", "refused")
        assert words in outcome.reason
    outcome = do_job(Job("three", (Step(tmp_path / "without", make_config(FORGETFUL)),)))
    assert "it is of an erasure, not of a training" in outcome.reason
    outcome = do_job(Job("four", (Step(tmp_path / "run", job.steps[1].work),)))
    assert "it is of a training, not of an erasure" in outcome.reason


def test_an_erasure_that_cannot_be_done_is_refused(tmp_path):
    training, forgetting = erasing(tmp_path, agents=(7,))
    train(training.work, training.folder)
    outcome = do_job(Job("one", (training, forgetting)))
    assert (outcome.status, outcome.kind) == ("failed", "refused")
    assert "must be in 0..2" in outcome.reason
    assert not (tmp_path / "without").exists()


def test_an_erasure_that_is_killed_goes_on_to_the_same_end(tmp_path):
    (training, forgetting) = erasing(tmp_path, repair=600, overrides=("evaluation.every=400",))
    train(training.work, training.folder)
    process = worker(forgetting.to_json())
    wait_for(lambda: forgetting.done() > 5)
    process.kill()
    out, _ = process.communicate(timeout=60)
    assert out == ""
    assert not forgetting.finished()
    forgetting.check()  # what is there is of this step
    assert do_job(Job("again", (forgetting,))).status == "finished"
    assert forgetting.finished()
    alone = Step(tmp_path / "alone", forgetting.work)
    assert do_job(Job("alone", (alone,))).status == "finished"
    assert load_particles(tmp_path / "without").equal(load_particles(tmp_path / "alone"))
