"""Erasure: from a run and a request to the config of a new run, and the rounds that do it.

The rounds of an erasure follow those of its parent, so that no random draw comes twice. First the agents that asked
forget (`rounds`), then those that stay repair (`repair`). Which phase a round belongs to, and who visits, follows from
its number alone: an erasure that was stopped goes on like any other run.

- forget-svgd: each agent runs Forget-SVGD on its own data (`methods/forget.py`).
- take-back by agent: each agent takes its site back, within the budget over as many uploads as there are rounds.
- take-back by server: the server takes it from the escrow, the sum of all that it has applied of the agent. It needs
  no agent and no bits.
- retrain: a new run from scratch, without the agents.

What was taken back is either subtracted from the particles, or handed over. Training ends at the posterior of the
agents that stay if theta = theta_0 + (sum of their sites) / delta. Subtracting the erased site makes that hold, and
throws the particles far off: the sites that stay balanced the one that is gone. Handing it over makes it hold as well:
the particles stay where they are, each site that stays gets an equal share, and its agent replaces that share, visit by
visit, by what its own data says. The end is the same, the way there is much shorter.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch

from fedstein.config import Config, ErasureConfig, Forgetting, Side, make_config, to_table
from fedstein.engines import ESCROW, RESIDUAL, Engine, Note, Patience, Schedule, State, no_note, rounds
from fedstein.errors import UserError
from fedstein.inference import GaussianPrior
from fedstein.methods import DSVGD, ForgetSVGD, Memory, Method, TakeBack
from fedstein.problem import Problem
from fedstein.uplink import plan

__all__ = ["erasure_rounds", "first_state", "plan_erasure", "site_norms"]

SHARE = 0.2  # of training's rounds, what the repair takes: its uploads stay under a quarter of retraining's
LETTER = {"factor": "kde", "kde_floor": 0.0, "kernel": "rbf", "step": "ema-adagrad", "step_size": 1e-3}


def plan_erasure(
    config: Config,
    problem: Problem,
    state: State,
    agents: Sequence[int],
    method: Forgetting,
    *,
    by: Side | None = None,
    rounds: int | None = None,
    repair: int | None = None,
    handover: bool = True,
    guarded: bool = True,
    keep_parent: bool = False,
    overrides: Sequence[str] = (),
    still_known: Collection[int] = (),
    parent: str = "",
    parent_sha256: str = "",
) -> Config:
    """The config of the new run. What is None is chosen to suit the method and the run.

    `overrides` are of keys that do not change what is learnt: `uplink.`, `evaluation.` and `recording.`. `still_known`
    are agents of an erasure before that never answered: they may be asked again.

    Raises:
        UserError: the agents are not there, or the run has not what the method needs.
    """
    agents = tuple(agents)
    _refuse_agents(config, problem, agents, still_known)
    for override in overrides:
        if not override.startswith(("uplink.", "evaluation.", "recording.")):
            raise UserError(
                f"The '--set' of an erasure must be of uplink, evaluation or recording: the rest is the run's that "
                f"forgets. Got {override!r} instead."
            )
    if by is None:
        by = "server" if method == "take-back" and config.recording.escrow else "agent"
    _refuse_method(config, problem, state, agents, method, by)
    _refuse_options(method, by, rounds, repair, handover, guarded)
    start = 0 if method == "retrain" else state.round
    if rounds is None:
        rounds = len(agents) * {"forget-svgd": 10, "take-back": _uploads(config, problem)}.get(method, 0)
    if method == "retrain" or (method == "take-back" and by == "server"):
        rounds = 0
    elif rounds < len(agents):
        raise UserError(f"The '--rounds' must be at least {len(agents)}, one for each agent. Got {rounds} instead.")
    if repair is None:
        repair = max(int(config.training_rounds * SHARE), 1) if method == "take-back" else 0
    if method == "take-back" and repair < 1:
        raise UserError("The '--repair' must be at least 1: without it the model is of no use. Got 0 instead.")
    if method == "retrain":
        repair = 0
    erasure = ErasureConfig(
        agents=agents,
        method=method,
        by=by,
        start=start,
        rounds=rounds,
        repair=repair,
        handover=handover,
        guarded=guarded,
        keep_parent=keep_parent,
        parent=parent,
        parent_sha256=parent_sha256,
    )
    staying = len(set(problem.present) - set(agents))
    count = min(config.schedule.agents_per_round, staying)
    every = config.evaluation.every
    planned = config.model_copy(
        update={
            "rounds": config.training_rounds if method == "retrain" else erasure.end,
            "erasures": (*config.erasures, erasure),
            "schedule": config.schedule.model_copy(update={"agents_per_round": count}),
            "evaluation": config.evaluation.model_copy(
                update={"every": every if method == "retrain" else min(every, max(1, (rounds + repair) // 20))}
            ),
        }
    )
    if problem.remote:  # agents elsewhere cannot go back to an older checkpoint
        overrides = [*overrides, "recording.checkpoint_every=1"]
    # Checked again: the limits of every key hold for what was planned as well.
    return make_config(to_table(planned), overrides)


def first_state(state: State, problem: Problem, config: Config) -> State:
    """The parent's state, without what the erasure does not need of the agents that leave."""
    erasure = config.erasures[-1]
    forgetting = _forgetting(config.method, erasure)
    needed: dict[int, Memory] = {}
    for agent in erasure.agents:
        memory = state.memories.get(agent, {})
        if erasure.by == "server":
            needed[agent] = {ESCROW: memory[ESCROW]} if ESCROW in memory else {}
        else:
            needed[agent] = forgetting.inherit(memory)
    needed = {agent: memory for agent, memory in needed.items() if memory}
    state = replace(state, memories=state.memories.without(erasure.agents).put(needed), uploads=(), frames=())
    return state if erasure.rounds else _let_go(state, problem, erasure)


def erasure_rounds(
    problem: Problem,
    config: Config,
    state: State,
    note: Note = no_note,
    engine: Engine | None = None,
    patience: Patience = Patience(),  # noqa: B008  (frozen)
) -> Iterator[State]:
    """The rounds of the newest erasure of a config, from `state` on, and repair without end after that."""
    erasure = config.erasures[-1]
    uplink = config.uplink.terms(config.method, problem.model.dim)
    absent: set[int] = set()
    go_on = partial(rounds, problem, seed=config.seed, note=note, engine=engine, patience=patience, absent=absent)
    if state.round - erasure.start < erasure.rounds:
        forgetting = _forgetting(config.method, erasure)
        # What is left of a site is the error-feedback memory of its taking back: a second one would count it twice.
        taking = erasure.method == "take-back"
        own = replace(uplink, feedback=False) if uplink is not None and taking else uplink
        while (done := state.round - erasure.start) < erasure.rounds:
            among = [_whose_turn(erasure, done)]
            state = next(go_on(forgetting, Schedule(), state=state, uplink=own, among=among, escrow=taking))
            if done + 1 == erasure.rounds:
                note("forgot", round=state.round, site_norms=site_norms(state, erasure.agents))
                state = _let_go(state, problem, erasure)
            yield state
    yield from go_on(config.method, config.schedule, state=state, uplink=uplink, escrow=config.recording.escrow)


def _let_go(state: State, problem: Problem, erasure: ErasureConfig) -> State:
    """After the last visit of the agents that leave: what was taken back is subtracted or handed over."""
    leaving = [state.memories[agent] for agent in erasure.agents if agent in state.memories]
    memories = state.memories.without(erasure.agents)
    if erasure.method != "take-back" or not leaving:
        return replace(state, memories=memories)
    total = torch.stack([memory[ESCROW] for memory in leaving]).sum(0)
    without = state.particles - total
    if erasure.by == "agent":  # they have subtracted it already, and the escrow is what they subtracted
        without, total = state.particles, -total
    if not erasure.handover:
        return replace(state, particles=without, memories=memories)
    assert isinstance(problem.prior, GaussianPrior)
    share = total * (problem.prior.precision / len(problem.present))
    sites = {}
    for agent in problem.present:
        memory = memories.get(agent, {})
        sites[agent] = {**memory, "site": memory["site"] + share if "site" in memory else share}
        if ESCROW in memory:  # it goes on to be the sum of all that the site stands for
            sites[agent][ESCROW] = memory[ESCROW] + total / len(problem.present)
    return replace(state, particles=without + total, memories=memories.put(sites))


def site_norms(state: State, agents: Sequence[int]) -> dict[str, float]:
    """How large what agents have to take back is; empty where they have no site."""
    memories = {agent: state.memories[agent] for agent in agents if agent in state.memories}
    return {str(agent): float(memory["site"].norm()) for agent, memory in memories.items() if "site" in memory}


def _whose_turn(erasure: ErasureConfig, done: int) -> int:
    """The letter's agents alternate. Guarded ones forget one after the other: each has an anchor of its own."""
    if erasure.method == "forget-svgd" and not erasure.guarded:
        return erasure.agents[done % len(erasure.agents)]
    return erasure.agents[done * len(erasure.agents) // erasure.rounds]


def _forgetting(method: Method, erasure: ErasureConfig) -> Method:
    """The method of the agents that forget, with the settings that the run was trained with.

    Without guards it is the letter's, whatever the run was trained with; only temperature, likelihood, batches and the
    number of local steps are the run's.
    """
    settings = method.model_dump()
    if erasure.method == "forget-svgd":
        return ForgetSVGD(**settings | ({} if erasure.guarded else LETTER), guarded=erasure.guarded)
    return TakeBack(**settings) if erasure.method == "take-back" else method


def _refuse_agents(
    config: Config, problem: Problem, agents: tuple[int, ...], still_known: Collection[int] = ()
) -> None:
    last = len(problem.agents) - 1
    for agent in agents:
        if not 0 <= agent <= last:
            raise UserError(f"The '--agents' must be in 0..{last}. Got {agent} instead.")
        if agent in config.erased and agent not in still_known:
            raise UserError(f"The agent {agent} was forgotten already. Coming back makes it a new agent.")
        if agents.count(agent) > 1:
            raise UserError(f"The '--agents' names agent {agent} twice.")
    if not agents:
        raise UserError("The '--agents' must name at least one agent. Got none.")
    if not set(problem.present) - set(agents):
        raise UserError(
            "The '--agents' must leave at least one: a model that forgets all its agents is a new model. "
            "Delete the run folder instead."
        )


def _refuse_method(
    config: Config, problem: Problem, state: State, agents: Sequence[int], method: Forgetting, by: Side
) -> None:
    """Say why a run cannot forget in this way."""
    if method == "retrain":
        return
    if not isinstance(config.method, DSVGD):
        raise UserError(
            f"The '--method' {method} needs a run of dsvgd; this one is of {config.method.name}. Use retrain."
        )
    if state.round == 0:
        raise UserError("The run has no rounds yet: there is nothing to forget. Use retrain.")
    if method == "forget-svgd":
        if by == "server":
            raise UserError("The '--by' server needs take-back: Forget-SVGD works on the agent's own data.")
        return
    if config.method.factor != "linear":
        raise UserError(
            f"The '--method' take-back needs a run with method.factor = 'linear': its sites say what each agent has "
            f"changed. This run has '{config.method.factor}' factors. Use forget-svgd or retrain."
        )
    if problem.remote and by == "agent":
        return  # only the agent knows whether its site is there
    key, place = (ESCROW, "the server's escrow") if by == "server" else ("site", "the agent's site")
    for agent in agents:
        memory = state.memories.get(agent, {})  # empty: it never took part, and there is nothing to take back
        if key not in memory and memory.keys() - {RESIDUAL}:
            reason = (
                "The run was trained without recording.escrow, so only the agent itself can take its site back "
                "('--by agent')."
                if by == "server"
                else "The agent's memory is gone."
            )
            raise UserError(f"Cannot take back agent {agent}: {place} is not there. {reason} Or use retrain.")


def _refuse_options(
    method: Forgetting, by: Side, rounds: int | None, repair: int | None, handover: bool, guarded: bool
) -> None:
    """Options that would be ignored are mistakes."""
    scratch, server = method == "retrain", method == "take-back" and by == "server"
    for given, word, reason in (
        (not handover and method != "take-back", "--subtract", "is for take-back"),
        (not guarded and method != "forget-svgd", "--unguarded", "is for forget-svgd"),
        (by == "server" and scratch, "--by", "is for take-back"),
        (rounds is not None and (scratch or server), "--rounds", "is for agents that forget; here none has to"),
        (repair is not None and scratch, "--repair", "has no meaning with retrain"),
    ):
        if given:
            raise UserError(f"The '{word}' {reason}. The method is {method}, by {by}.")


def _uploads(config: Config, problem: Problem) -> int:
    """How many uploads carry a whole site: one without a budget, else enough for every entry three times."""
    uplink = config.uplink.terms(config.method, problem.model.dim)
    if uplink is None:
        return 1
    contract = uplink.contract.per_group() if uplink.contract.can_be_common else uplink.contract
    return 3 * math.ceil(problem.model.dim / plan(contract).kept)
