"""The budget in training: every round, every method, with faults on the way."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import fedstein
from fedstein import UserError
from fedstein.build import build_problem, fit_config
from fedstein.config import make_config
from fedstein.data import load_digits
from fedstein.engines import Local, Schedule, rounds, start
from fedstein.methods import DSGLD, DSVGD, FedAvg
from fedstein.models import DenseStack
from fedstein.problem import Problem
from fedstein.runs import RunFolder, load_state
from fedstein.uplink import Contract, Uplink, decode


def problem(agents=3):
    digits = load_digits()
    parts = [digits.train.take(torch.arange(k * 60, (k + 1) * 60)) for k in range(agents)]
    return Problem(DenseStack([64, 16, 10]), parts, test=digits.test)


def uplink(particles, budget=1210, feedback=False, groups=1, **more):
    return Uplink(Contract(1210, particles, groups, 5, budget, **more), feedback)


class BadLink(Local):
    """Something happens to the frames on their way."""

    def __init__(self, problem, link):
        super().__init__(problem)
        self.link = link

    def collect(self, seconds):
        return [replace(found, frame=self.link(found.frame)) for found in super().collect(seconds)]


def states(method, terms, count, link=bytes, schedule=None, task=None):
    task = problem() if task is None else task
    engine = BadLink(task, link)
    run = rounds(task, method, schedule or Schedule(), 0, start(task, method, 0), terms, engine=engine)
    return [next(run) for _ in range(count)]


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
    terms = uplink(method.particles, feedback=feedback, **mode)
    for state in states(method, terms, 6):
        (bill,) = state.uploads
        assert bill.bits == 8 * len(state.frames[0]) <= bill.budget_bits == 1210
        assert bill.kept > 0
        assert not bill.refused


def test_the_server_applies_what_the_frame_says_and_nothing_else():
    method, terms, task = METHODS[0], uplink(4), problem()
    before = start(task, method, 0).particles
    for state in states(method, terms, 4, task=task):
        found = torch.from_numpy(decode(state.frames[0], terms.contract).dense())
        torch.testing.assert_close(state.particles, before + found, rtol=0, atol=0)
        before = state.particles


def test_the_site_is_that_of_what_was_applied():
    method, task = METHODS[1], problem()
    last = states(method, uplink(4), 7, task=task, schedule=Schedule(agents_per_round=2))[-1]
    sites = sum(memory["site"] for memory in last.memories.values())
    moved = last.particles - start(task, method, 0).particles
    torch.testing.assert_close(sites, moved * task.prior.precision, rtol=1e-4, atol=1e-6)


def test_feedback_keeps_exactly_what_did_not_arrive():
    method, task = FedAvg(local_steps=3), problem(1)
    first, second = states(method, uplink(1, feedback=True), 2, task=task)
    free = states(method, None, 1, task=task)[0].particles - start(task, method, 0).particles
    sent = first.particles - start(task, method, 0).particles
    torch.testing.assert_close(first.memories[0]["residual"], free - sent)
    assert second.memories[0]["residual"].abs().sum() > 0
    assert not states(method, uplink(1), 1, task=task)[0].memories  # nothing is kept


def test_feedback_lets_everything_arrive_in_the_end():
    """With no new updates a residual is drained: what is sent adds up to what was meant."""
    contract = Contract(300, 2, 1, 6, 900)
    from fedstein.uplink import encode

    wish = np.random.default_rng(0).normal(size=(2, 300)).astype(np.float32)
    left, total, random = wish.copy(), np.zeros_like(wish), np.random.default_rng(1)
    for _ in range(60):
        sparse = encode(left, contract, random)[1]
        total += sparse.dense()
        left -= sparse.dense()
    assert np.abs(wish - total).max() < 0.05 * np.abs(wish).max()


def test_a_refused_frame_leaves_the_particles_untouched_and_the_run_goes_on():
    method, task = METHODS[1], problem()
    count = 0

    def bad_link(frame):
        nonlocal count
        count += 1
        return frame[:-1] if count == 2 else frame

    found = states(method, uplink(4, feedback=True), 4, link=bad_link, task=task)
    assert [state.uploads[0].refused for state in found] == [False, True, False, False]
    torch.testing.assert_close(found[1].particles, found[0].particles, rtol=0, atol=0)
    assert "site" not in found[1].memories[1]
    assert found[1].memories[1]["residual"].abs().sum() > 0
    assert not torch.equal(found[2].particles, found[1].particles)


def test_resuming_keeps_the_residual():
    method, terms, task = METHODS[0], uplink(4, feedback=True), problem()
    whole = states(method, terms, 6, task=task)
    run = rounds(task, method, Schedule(), 0, whole[2], terms)
    assert torch.equal([next(run) for _ in range(3)][-1].particles, whole[-1].particles)


def test_residuals_and_sites_are_saved_apart_and_resumed(tmp_path):
    overrides = ["data.name=digits", "data.agents=3", "method.factor=linear", "method.particles=3", "rounds=7",
                 "evaluation.every=7", "uplink.budget=1d", "uplink.feedback=true"]  # fmt: skip
    config = make_config(overrides=overrides)
    with RunFolder.create(tmp_path / "run", config) as run:
        run.save(fit_config(config, [run]).state)
    state = load_state(run.path)
    assert state.round == 7
    assert {name for memory in state.memories.values() for name in memory} == {"site", "residual"}
    longer = make_config(overrides=[*overrides, "rounds=12", "evaluation.every=12"])
    whole, resumed = fit_config(longer), fit_config(longer, state=state)
    assert torch.equal(whole.particles, resumed.particles)
    assert {path.name for path in (run.path / "agents").iterdir()} == {"agent-0", "agent-1", "agent-2"}


def test_fashion_mnist_is_learnt_under_the_budget_in_every_round(tmp_path, fashion_mnist):
    """R_u = d, ten particles: the recorded frames, decoded alone, are the whole training."""
    config = make_config(
        overrides=["uplink.budget=1.0d", "uplink.feedback=true", "uplink.record_frames=true", "uplink.entries=adaptive",
                   "method.step=gradient", "method.step_size=2", "rounds=30", "evaluation.every=30"]
    )  # fmt: skip
    task = build_problem(config)
    with RunFolder.create(tmp_path / "run", config) as run:
        trained = fit_config(config, [run], task)
    assert trained.metrics["accuracy"] > 0.75
    assert trained.totals.max_upload_bits <= 79_510
    terms = config.uplink.terms(config.method, task.model.dim)
    particles = start(task, config.method, config.seed).particles
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
        found = decode(frame, terms.contract)
        assert found.kept == bill["kept"]
        particles = particles + torch.from_numpy(found.dense())
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
        return config.uplink.terms(config.method, 7510)

    with pytest.raises(UserError, match=message):
        terms()


def test_the_budget_in_python():
    digits = load_digits()
    agents = [(digits.train.x[k::3], digits.train.y[k::3]) for k in range(3)]
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))
    terms = fedstein.UplinkConfig(budget="1.0d", feedback=True)
    found = fedstein.train(module, agents, method=DSVGD(particles=4), rounds=5, uplink=terms)
    assert 0 < found.totals.max_upload_bits <= 1210
    assert found.totals.upload_bits <= 5 * 1210
