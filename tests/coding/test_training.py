"""The budget in training: every round, every method, with faults on the way."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch

import fedstein
from fedstein.coding import Contract, Link, decode, encode
from fedstein.data import Holdings, load_digits
from fedstein.engines import Local
from fedstein.errors import UserError
from fedstein.methods import DSGLD, DSVGD, FedAvg
from fedstein.models import DenseStack, Task
from fedstein.protocol import Schedule
from fedstein.protocol.server import rounds, start
from fedstein.runs.folder import load_state
from fedstein.runs.problem import Problem, build_problem
from fedstein.runs.recorder import Recorder
from fedstein.runs.verbs import fit_config
from fedstein.settings import make_config


def problem(agents=3):
    digits = load_digits()
    parts = [digits.train.take(torch.arange(k * 60, (k + 1) * 60)) for k in range(agents)]
    return Problem(Task(DenseStack([64, 16, 10])), Holdings(parts))


def link(particles, budget=1210, feedback=False, groups=1, **more):
    return Link(Contract(1210, particles, groups, 5, budget, **more), feedback)


class BadLink(Local):
    """Something happens to the frames on their way."""

    def __init__(self, learnt, on_the_way):
        super().__init__(learnt.task, learnt.holdings)
        self.on_the_way = on_the_way

    def collect(self, seconds):
        return [replace(answer, frame=self.on_the_way(answer.frame)) for answer in super().collect(seconds)]


def run(method, terms, count, on_the_way=bytes, schedule=None, learnt=None, state=None):
    """The state after each round, and what is told about it."""
    learnt = problem() if learnt is None else learnt
    state = first(learnt, method) if state is None else state
    task, holdings, engine = learnt.task, learnt.holdings, BadLink(learnt, on_the_way)
    return list(islice(rounds(task, holdings, method, schedule or Schedule(), 0, state, engine, link=terms), count))


def states(*arguments, **more):
    return [state for state, _ in run(*arguments, **more)]


def first(learnt, method, seed=0):
    return start(learnt.task, method, seed)


METHODS = [
    DSVGD(particles=4, local_steps=3),
    DSVGD(particles=4, local_steps=3, factor="linear"),
    DSVGD(particles=4, local_steps=3, factor="kde", distil_steps=3),
    FedAvg(local_steps=3),
    DSGLD(particles=4, local_steps=3, step_size=1e-6),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: f"{m.name}-{getattr(m, 'factor', '')}")
@pytest.mark.parametrize("mode", [{}, {"positions": "informed", "entries": "adaptive"}])
@pytest.mark.parametrize("feedback", [False, True])
def test_every_method_stays_within_the_budget(method, mode, feedback):
    terms = link(method.particles, feedback=feedback, **mode)
    for _, told in run(method, terms, 6):
        (bill,) = told.uploads
        assert bill.bits == 8 * len(told.frames[0]) <= bill.budget_bits == 1210
        assert bill.kept > 0
        assert not bill.refused


def test_the_server_applies_what_the_frame_says_and_nothing_else():
    method, terms, learnt = METHODS[0], link(4), problem()
    before = first(learnt, method).particles
    for state, told in run(method, terms, 4, learnt=learnt):
        sent = torch.from_numpy(decode(told.frames[0], terms.contract).dense())
        torch.testing.assert_close(state.particles, before + sent, rtol=0, atol=0)
        before = state.particles


def test_the_site_is_that_of_what_was_applied():
    method, learnt = METHODS[1], problem()
    last = states(method, link(4), 7, learnt=learnt, schedule=Schedule(agents_per_round=2))[-1]
    sites = sum(memory["site"] for memory in last.memories.values())
    moved = last.particles - first(learnt, method).particles
    torch.testing.assert_close(sites, moved * learnt.task.prior.precision, rtol=1e-4, atol=1e-6)


def test_feedback_keeps_exactly_what_did_not_arrive():
    method, learnt = FedAvg(local_steps=3), problem(1)
    before = first(learnt, method).particles
    one, second = states(method, link(1, feedback=True), 2, learnt=learnt)
    free = states(method, None, 1, learnt=learnt)[0].particles - before
    sent = one.particles - before
    torch.testing.assert_close(one.memories[0]["residual"], free - sent)
    assert second.memories[0]["residual"].abs().sum() > 0
    assert not states(method, link(1), 1, learnt=learnt)[0].memories  # nothing is kept


def test_feedback_lets_everything_arrive_in_the_end():
    """With no new updates a residual is drained: what is sent adds up to what was meant."""
    contract = Contract(300, 2, 1, 6, 900)
    wish = np.random.default_rng(0).normal(size=(2, 300)).astype(np.float32)
    left, total, random = wish.copy(), np.zeros_like(wish), np.random.default_rng(1)
    for _ in range(60):
        sparse = encode(left, contract, random)[1]
        total += sparse.dense()
        left -= sparse.dense()
    assert np.abs(wish - total).max() < 0.05 * np.abs(wish).max()


def test_a_refused_frame_leaves_the_particles_untouched_and_the_run_goes_on():
    method, learnt = METHODS[1], problem()
    count = 0

    def bad_link(frame):
        nonlocal count
        count += 1
        return frame[:-1] if count == 2 else frame

    after = run(method, link(4, feedback=True), 4, on_the_way=bad_link, learnt=learnt)
    assert [told.uploads[0].refused for _, told in after] == [False, True, False, False]
    before, refused, good, _ = (state for state, _ in after)
    torch.testing.assert_close(refused.particles, before.particles, rtol=0, atol=0)
    assert "site" not in refused.memories[1]
    assert refused.memories[1]["residual"].abs().sum() > 0
    assert not torch.equal(good.particles, refused.particles)


def test_resuming_keeps_the_residual():
    method, terms, learnt = METHODS[0], link(4, feedback=True), problem()
    whole = states(method, terms, 6, learnt=learnt)
    resumed = states(method, terms, 3, learnt=learnt, state=whole[2])
    assert torch.equal(resumed[-1].particles, whole[-1].particles)


def test_residuals_and_sites_are_saved_apart_and_resumed(tmp_path):
    overrides = ["data.name=digits", "data.agents=3", "method.factor=linear", "method.particles=3", "rounds=7",
                 "evaluation.every=7", "uplink.budget=1d", "uplink.feedback=true", "threads=1"]  # fmt: skip
    config = make_config(overrides=overrides)
    with Recorder.create(tmp_path / "run", config) as recorder:
        recorder.save(fit_config(config, watchers=[recorder]).state)
    state = load_state(recorder.path)
    assert state.round == 7
    assert {name for memory in state.memories.values() for name in memory} == {"site", "residual"}
    longer = make_config(overrides=[*overrides, "rounds=12", "evaluation.every=12"])
    whole, resumed = fit_config(longer), fit_config(longer, state=state)
    assert torch.equal(whole.particles, resumed.particles)
    assert {path.name for path in (recorder.path / "agents").iterdir()} == {"agent-0", "agent-1", "agent-2"}


def test_fashion_mnist_is_learnt_under_the_budget_in_every_round(tmp_path, fashion_mnist):
    """R_u = d, ten particles: the recorded frames, decoded alone, are the whole training."""
    config = make_config(
        overrides=["uplink.budget=1.0d", "uplink.feedback=true", "uplink.record_frames=true", "uplink.entries=adaptive",
                   "method.step=gradient", "method.step_size=2", "rounds=30", "evaluation.every=30", "threads=1"]
    )  # fmt: skip
    learnt = build_problem(config)
    with Recorder.create(tmp_path / "run", config) as recorder:
        trained = fit_config(config, problem=learnt, watchers=[recorder])
    assert trained.metrics["accuracy"] > 0.75
    assert trained.totals.max_upload_bits <= 79_510
    terms = config.uplink.link(config.method, learnt.dim)
    particles = first(learnt, config.method, config.seed).particles
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 30
    for line in lines:
        (bill,) = line["uploads"]
        frame = (
            tmp_path / "run" / "frames" / f"agent-{bill['agent']}" / f"round-{line['round']:06d}.frame"
        ).read_bytes()
        assert 8 * len(frame) == bill["bits"] <= bill["budget_bits"] == 79_510
        assert line["total_download_bits"] == line["round"] * 32 * 10 * 79_510
        assert bill["position_bits"] + bill["entry_bits"] + 8 * terms.contract.overhead_bytes == bill["bits"]
        sent = decode(frame, terms.contract)
        assert sent.kept == bill["kept"]
        particles = particles + torch.from_numpy(sent.dense())
    assert torch.equal(particles, trained.particles)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["uplink.budget=8"], "at least"),
        (["uplink.budget=lots"], "uplink.budget"),
        (["uplink.budget=1d", "uplink.sharing=0.3"], "1/5"),
        (["uplink.budget=1d", "method.name=svgd"], "nothing is uploaded"),
        (["uplink.budget=1d", "uplink.entries=adaptive", "uplink.positions=golomb"], "adaptive entries"),
        (["uplink.budget=1d", "uplink.bits_per_entry=17"], "less than or equal to 16"),
    ],
)
def test_impossible_terms_are_refused(overrides, message):
    def terms():
        config = make_config(overrides=overrides)
        return config.uplink.link(config.method, 7510)

    with pytest.raises(UserError, match=message):
        terms()


def test_the_budget_in_python():
    digits = load_digits()
    agents = [(digits.train.x[k::3], digits.train.y[k::3]) for k in range(3)]
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))
    terms = fedstein.Uplink("1.0d", feedback=True)
    trained = fedstein.train(module, agents, method=DSVGD(particles=4), rounds=5, uplink=terms)
    assert 0 < trained.totals.max_upload_bits <= 1210
    assert trained.totals.upload_bits <= 5 * 1210
