"""Erasure against exact answers and against retraining, without run folders."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest
import torch

from fedstein.data.synthetic import GaussianMean
from fedstein.engines import Local
from fedstein.errors import UserError
from fedstein.metrics import kl
from fedstein.protocol import ESCROW
from fedstein.protocol.server import start
from fedstein.runs.forget.plan import plan_erasure
from fedstein.runs.forget.rounds import erasure_rounds, first_state
from fedstein.runs.judge import predict
from fedstein.runs.problem import build_problem
from fedstein.runs.verbs import fit_config
from fedstein.settings import load_preset, make_config
from fedstein.store.lineage import Lineage
from fedstein.streams import stream

GAUSSIAN = ["data.name=synthetic-gaussian", "data.agents=4", "method.factor=linear", "method.particles=6",
            "method.stiffness=1.0", "method.step_size=0.3", "prior.init=prior", "rounds=150", "evaluation.every=1000",
            "recording.escrow=true", "threads=1"]  # fmt: skip


def trained(overrides):
    config = make_config(overrides=overrides)
    problem = build_problem(config)
    return config, problem, fit_config(config, problem=problem)


def plan(config, problem, state, agents, method, **options):
    """The config and the lineage of the erasure, and the problem without the agents."""
    planned, lineage = plan_erasure(config, Lineage(), problem, state, agents, method, **options)
    return planned, lineage, build_problem(planned, lineage, files=problem.network_files)


def going_on(without, planned, lineage, state):
    return erasure_rounds(without, planned, lineage, state, Local(without.task, without.holdings))


def erased(config, problem, state, agents, method, **options):
    """The last state of an erasure, and the problem without the agents."""
    planned, lineage, without = plan(config, problem, state, agents, method, **options)
    begin = first_state(state, without, planned.method, lineage)
    *_, (last, _) = islice(going_on(without, planned, lineage, begin), planned.rounds - state.round)
    return last, without


@pytest.mark.parametrize("by", ["server", "agent"])
@pytest.mark.parametrize("handover", [True, False])
@pytest.mark.parametrize("budget", [None, "170"])
def test_on_the_gaussian_erasure_ends_at_the_exact_posterior_without_the_agent(by, handover, budget):
    overrides = GAUSSIAN if budget is None else [*GAUSSIAN, f"uplink.budget={budget}", "uplink.bits_per_entry=8"]
    config, problem, knows = trained(overrides)
    options = {
        "by": by,
        "handover": handover,
        "repair": 120 if handover else 400,
        "rounds": 40 if budget and by == "agent" else None,
    }
    last, _ = erased(config, problem, knows.state, [0], "take-back", **options)
    # In closed form: each particle alone is the optimum anchored at its own start.
    gaussian = GaussianMean.draw(4, 20, 3, stream(0, "synthetic"))
    mean, std = replace(gaussian, agents=gaussian.agents[1:]).posterior()
    exact = mean + problem.task.prior.precision * std**2 * start(problem.task, config.method, 0).particles.double()
    assert (knows.particles - exact).norm(dim=1).max() > 0.05 * mean.norm()
    assert (last.particles - exact).norm(dim=1).max() < 0.01 * mean.norm()
    assert 0 not in last.memories


def test_particles_are_their_starts_and_the_sites_of_those_who_stay():
    """The invariant that makes the end right: theta = theta_0 + sum of sites / delta, also just after handing over."""
    config, problem, knows = trained([*GAUSSIAN, "uplink.budget=170"])
    first = start(problem.task, config.method, config.seed).particles
    for handover in (True, False):
        planned, lineage, without = plan(config, problem, knows.state, [1, 2], "take-back", handover=handover)
        state = first_state(knows.state, without, planned.method, lineage)
        sites = sum(memory["site"] for memory in state.memories.values())
        assert set(state.memories) == {0, 3}
        torch.testing.assert_close(state.particles, first + sites / problem.task.prior.precision, atol=1e-4, rtol=1e-4)
        escrow = sum(memory[ESCROW] for memory in state.memories.values())
        torch.testing.assert_close(escrow, sites / problem.task.prior.precision, atol=1e-4, rtol=1e-4)
        moved = (state.particles - knows.particles).norm()
        assert moved < 1e-4 if handover else moved > 0.1


DIGITS = ["data.name=digits", "data.partition=class-pairs", "data.agents=10", "method.factor=linear",
          "method.particles=6", "method.likelihood=mean", "method.temperature=0.1", "evaluation.every=1000",
          "recording.escrow=true", "threads=1"]  # fmt: skip


def distance(problem, reference, particles):
    p, q = (predict(problem.task.model, these, problem.judge.test.x).probabilities for these in (reference, particles))
    return float(kl(p, q).mean())


@pytest.mark.parametrize("hidden", ["[]", "[16]"])
def test_after_take_back_and_repair_the_model_is_near_the_retrained_one(hidden):
    """Logistic regression and a whole small network, at a fifth of retraining's rounds."""
    config, problem, knows = trained([*DIGITS, f"model.hidden={hidden}", f"rounds={300 if hidden == '[]' else 600}"])
    last, without = erased(config, problem, knows.state, [2, 3], "take-back")
    again, lineage, _ = plan(config, problem, knows.state, [2, 3], "retrain")
    retrained = fit_config(again, lineage, problem=without)
    metrics = without.evaluate(last.particles)
    theirs = without.evaluate(retrained.particles)
    before = distance(without, retrained.particles, knows.particles)
    after = distance(without, retrained.particles, last.particles)
    assert without.evaluate(knows.particles)["forgotten_label_accuracy"] > 0.5
    assert metrics["forgotten_label_accuracy"] <= theirs["forgotten_label_accuracy"] + 0.02
    assert metrics["retained_label_accuracy"] > theirs["retained_label_accuracy"] - 0.03
    assert after < before / 4
    sent = last.totals.upload_bits - knows.totals.upload_bits
    assert sent < retrained.totals.upload_bits / 4


def test_forgetting_agents_take_turns_or_go_one_after_the_other():
    config, problem, knows = trained([*DIGITS, "model.hidden=[]", "rounds=20"])
    for guarded, order in ((True, [4, 4, 4, 1, 1, 1]), (False, [4, 1, 4, 1, 4, 1])):
        options = {"rounds": 6, "guarded": guarded, "repair": 8}
        planned, lineage, without = plan(config, problem, knows.state, [4, 1], "forget-svgd", **options)
        begin = first_state(knows.state, without, planned.method, lineage)
        after = list(islice(going_on(without, planned, lineage, begin), 9))
        assert [told.uploads[0].agent for _, told in after[:6]] == order
        assert not {1, 4} & {upload.agent for _, told in after[6:] for upload in told.uploads}
        assert not {1, 4} & set(after[5][0].memories)


def test_it_is_the_same_when_it_goes_on_from_any_round():
    config, problem, knows = trained([*DIGITS, "model.hidden=[]", "rounds=20", "uplink.budget=2d"])
    for method, options in (("take-back", {"by": "agent", "rounds": 4}), ("forget-svgd", {"rounds": 4})):
        planned, lineage, without = plan(config, problem, knows.state, [1, 4], method, repair=8, **options)
        begin = first_state(knows.state, without, planned.method, lineage)
        states = [state for state, _ in islice(going_on(without, planned, lineage, begin), 12)]
        for state in states[:-1]:
            *_, (again, _) = islice(going_on(without, planned, lineage, state), 32 - state.round)
            assert torch.equal(again.particles, states[-1].particles)


def test_what_cannot_work_is_refused_with_a_reason():
    config, problem, knows = trained([*GAUSSIAN, "rounds=6"])
    nothing = Lineage()

    def refused(match, *arguments, where=(config, nothing, problem, knows.state), **options):
        with pytest.raises(UserError, match=match):
            plan_erasure(*where, *arguments, **options)

    refused("in 0..3. Got 4", [4], "take-back")
    refused("names agent 1 twice", [1, 1], "take-back")
    refused("at least one: a model", [0, 1, 2, 3], "retrain")
    refused("at least one agent", [], "retrain")
    refused("needs take-back", [0], "forget-svgd", by="server")
    refused("'--repair' must be at least 1", [0], "take-back", repair=0)
    refused("'--rounds' must be at least 2", [0, 1], "forget-svgd", rounds=1)
    plain = trained([line for line in GAUSSIAN if "escrow" not in line and "rounds" not in line] + ["rounds=6"])
    where = plain[0], nothing, plain[1], plain[2].state
    refused("escrow is not there. The run was trained without", [0], "take-back", by="server", where=where)
    assert plan_erasure(*where, [0], "take-back")[1].newest.by == "agent"
    flat = trained(["data.name=digits", "rounds=2", "method.particles=2", "model.hidden=[]", "threads=1"])
    refused("'flat' factors", [0], "take-back", where=(flat[0], nothing, flat[1], flat[2].state))
    fedavg = trained(["data.name=digits", "rounds=2", "method.name=fedavg", "model.hidden=[]", "threads=1"])
    refused("needs a run of dsvgd", [0], "forget-svgd", where=(fedavg[0], nothing, fedavg[1], fedavg[2].state))
    again, lineage, without = plan(config, problem, knows.state, [0], "take-back")
    refused("forgotten already", [0], "retrain", where=(again, lineage, without, knows.state))
    begun = replace(knows.state, round=0)
    refused("no rounds yet", [0], "take-back", where=(config, nothing, problem, begun))


def test_an_agent_that_never_took_part_leaves_without_a_trace():
    config, problem, knows = trained([*GAUSSIAN, "rounds=2"])
    last, _ = erased(config, problem, knows.state, [3], "take-back", repair=3)
    assert 3 not in last.memories


def test_the_preset_is_the_letters_setting():
    config = load_preset("unlearning")
    assert (config.method.particles, config.data.agents, config.data.examples) == (40, 10, 100)
    assert config.data.partition == "class-pairs"
    assert config.pretrain.rounds > 0
    assert config.uplink.budget == "1.0d"
    with pytest.raises(UserError, match="must be one of letter, letter-unlearning, unlearning"):
        load_preset("unlearnin")
