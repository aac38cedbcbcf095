"""Steps that shrink over the rounds: how, for whom, and what an erasure makes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fedstein as fs
from fedstein.engines import Local
from fedstein.methods import DSGLD, DSVGD, QLSD, FedAvg
from fedstein.methods.forget_svgd import ForgetSVGD
from fedstein.methods.svgd import CentralSVGD
from fedstein.protocol import Schedule
from fedstein.protocol.server import rounds, start
from fedstein.runs.folder import edits
from fedstein.runs.forget.plan import plan_erasure
from fedstein.runs.forget.rounds import erasure_rounds, first_state
from fedstein.runs.problem import build_problem
from fedstein.runs.verbs import fit_config
from fedstein.settings import make_config
from fedstein.store.lineage import Lineage

DIGITS = ["data.name=digits", "data.agents=4", "model.hidden=[]", "method.particles=2", "method.local_steps=3",
          "method.step=gradient", "method.step_size=0.1", "threads=1"]  # fmt: skip


@given(st.integers(1, 2000), st.integers(0, 500), st.integers(0, 4000))
def test_steps_shrink_evenly_to_a_fiftieth(over, begin, round):
    method = FedAvg(step_size=0.5, anneal_over=over, anneal_from=begin)
    size = method.size_in(round)
    assert size * (1 + 1e-12) >= 0.5 / 50
    assert method.size_in(round + 1) <= size <= 0.5
    if round <= begin:
        assert size == 0.5
    if round >= begin + over:
        assert size == pytest.approx(0.01)
    elif round >= begin:
        assert size == pytest.approx(0.5 * max(0.02, 1 - (round - begin) / over))
    assert FedAvg(step_size=0.5).size_in(round) == 0.5


@pytest.mark.parametrize("name", ["dsvgd", "fedavg", "svgd"])
def test_a_round_has_the_step_of_its_place(name):
    """Round 3 of an annealing is a round with that smaller step."""
    own = [*DIGITS, f"method.name={name}"]
    whole = make_config(overrides=[*own, "method.anneal_over=10"])
    problem = build_problem(whole)
    size = whole.method.size_in(3)
    assert size == pytest.approx(0.07)
    smaller = make_config(overrides=[*own, f"method.step_size={size}"])
    parts = []
    for config in (whole, smaller):
        state = start(problem.task, config.method, 0)
        state = type(state)(3, state.particles)
        parts.append(
            next(
                rounds(
                    problem.task,
                    problem.holdings,
                    config.method,
                    Schedule(),
                    0,
                    state,
                    Local(problem.task, problem.holdings),
                )
            )[0]
        )
    assert torch.equal(parts[0].particles, parts[1].particles)
    assert not torch.equal(parts[0].particles, start(problem.task, whole.method, 0).particles)


def test_the_way_ends_between_agents_that_are_unlike():
    """What it is for: with one class pair an agent, the end of the way is nearer to its own mean."""

    def spread(*more):
        split = ["data.partition=class-pairs", "data.agents=5", "rounds=60", "posterior.window=1", "data.examples=100"]
        trained = fit_config(make_config(overrides=[*DIGITS, *split, *more]))
        return float((trained.members[: len(trained.state.particles)] - trained.state.particles).norm())

    assert spread("method.anneal_over=60") < 0.5 * spread()


def test_langevin_steps_never_shrink():
    for method in (DSGLD, QLSD):
        with pytest.raises(ValueError, match="anneal_over"):
            method(anneal_over=10)


def test_an_erasure_begins_with_whole_steps():
    method = DSVGD(anneal_over=100, step_size=0.5)
    assert ForgetSVGD.of(method, guarded=True).size_in(100) == 0.5
    again = method.annealed_anew(120, 40)
    assert [again.size_in(round) for round in (100, 120, 140, 160)] == pytest.approx([0.5, 0.5, 0.25, 0.01])
    assert method.annealed_anew(120, None).size_in(500) == 0.5
    assert DSVGD().annealed_anew(120, 40) == DSVGD()
    assert CentralSVGD(anneal_over=3).annealed_anew(0, None).anneal_over is None


def test_the_repair_after_an_erasure_is_an_annealing_of_its_own():
    more = ["method.factor=linear", "rounds=20", "recording.escrow=true", "posterior.from=last"]
    config = make_config(overrides=[*DIGITS, *more, "method.anneal_over=20"])
    whole = make_config(overrides=[*DIGITS, *more])
    problem = build_problem(config)
    state = fit_config(config, problem=problem).state
    ways = []
    for one in (config, whole):  # the same state, with the method as it was and without any annealing
        plan, lineage = plan_erasure(one, Lineage(), problem, state, [1], "take-back", by="server", repair=20)
        now = replace(problem, holdings=replace(problem.holdings, erased=lineage.erased))
        begin = first_state(state, now, plan.method, lineage, escrow=True)
        repairing = erasure_rounds(now, plan, lineage, begin, Local(now.task, now.holdings))
        ways.append([after.particles for after, _ in islice(repairing, 20)])
    assert torch.equal(ways[0][0], ways[1][0])
    moves = [torch.stack(way).diff(dim=0).norm(dim=(1, 2)) for way in ways]
    assert moves[0][-1] < 0.1 * moves[1][-1]


def test_an_extended_run_knows_its_config(tmp_path):
    config = make_config(overrides=[*DIGITS, "rounds=3", "method.anneal_over=3"])
    path = tmp_path / "a"
    fs.train_config(config, path, progress=False)
    for more in (5, 7):
        assert fs.open(path).resume(rounds=more, progress=False).config.method.anneal_over == more
        assert edits(path) == []
    # A stop between the journal's line and config.toml.
    with (path / "journal.jsonl").open("a") as journal:
        journal.write(json.dumps({"time": "2026-01-01T00:00:00+00:00", "event": "extended", "rounds": 9}) + "\n")
    after = fs.open(path, careful=False).resume(progress=False)
    assert (after.rounds, after.config.method.anneal_over) == (9, 9)
    assert edits(path) == []
    # An annealing of its own stays.
    fixed = fs.train_config(make_config(overrides=[*DIGITS, "rounds=3", "method.anneal_over=4"]), tmp_path / "b")
    assert fixed.resume(rounds=6).config.method.anneal_over == 4
