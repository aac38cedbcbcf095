"""The rounds of an erasure.

The rounds of an erasure follow those of its parent, so that no random draw comes twice. First the agents that asked
forget (`rounds`), then those that stay repair (`repair`). Which phase a round belongs to, and who visits, follows from
its number alone: an erasure that was stopped goes on like any other run.

- forget-svgd: each agent runs Forget-SVGD on its own data (`methods/forget_svgd.py`).
- take-back by agent: each agent takes its site back, within the budget over as many uploads as there are rounds.
- take-back by server: the server takes it from the escrow, the sum of all that it has applied of the agent. It needs
  no agent and no bits.
- retrain: a new run from scratch, without the agents.

What was taken back is either subtracted from the particles, or handed over. Training ends at the posterior of the
agents that stay if theta = theta_0 + (sum of their sites) / delta. Subtracting the erased site makes that hold, and
throws the particles far off: the sites that stay balanced the one that is gone. Handing it over makes it hold as well:
the particles stay where they are, each site that stays gets an equal portion, and its agent replaces that portion,
visit by visit, by what its own data says. The end is the same, the way there is much shorter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch

from fedstein.methods import FORGETTING, Memory, Method
from fedstein.protocol.messages import HANDED_OVER, Engine, Note, no_note
from fedstein.protocol.patience import Patience
from fedstein.protocol.schedule import Schedule
from fedstein.protocol.server import rounds
from fedstein.protocol.state import ESCROW, State, Told
from fedstein.runs.problem import Problem
from fedstein.settings import Config
from fedstein.store.lineage import Erasure, Lineage

__all__ = ["contribution_sizes", "erasure_rounds", "first_state"]


def first_state(state: State, problem: Problem, method: Method, lineage: Lineage, escrow: bool = False) -> State:
    """The parent's state, without what the erasure does not need of the agents that leave.

    Args:
        state: the parent's.
        problem: of the new run.
        method: that it was trained with.
        lineage: its newest erasure is the one.
        escrow: the server keeps the sum of what it applied of each agent.
    """
    erasure = lineage.newest
    forgetting = _forgetting(method, erasure)
    needed: dict[int, Memory] = {}
    for agent in erasure.agents:
        memory = state.memories.get(agent, {})
        if erasure.by == "server":
            needed[agent] = {ESCROW: memory[ESCROW]} if ESCROW in memory else {}
        else:
            # A portion of an earlier erasure that an agent elsewhere has not taken over yet is its to take back too.
            waiting = {name: portion for name, portion in memory.items() if name.startswith(HANDED_OVER)}
            needed[agent] = forgetting.inherit(memory) | waiting
    needed = {agent: memory for agent, memory in needed.items() if memory}
    # Means remember: the way that led here knows the agents that leave.
    state = replace(state, memories=state.memories.without(erasure.agents).put(needed), turns=state.turns.forgotten())
    return state if erasure.rounds else _let_go(state, problem, method, lineage, escrow)


def erasure_rounds(
    problem: Problem,
    config: Config,
    lineage: Lineage,
    state: State,
    engine: Engine,
    note: Note = no_note,
    patience: Patience = Patience(),  # noqa: B008  (frozen)
) -> Iterator[tuple[State, Told]]:
    """The rounds of the newest erasure, from `state` on, and repair without end after that.

    Args:
        problem: what is to be forgotten, by whom.
        config: of the new run.
        lineage: its newest erasure is the one.
        state: where to go on from.
        engine: carries the messages.
        note: is told of every protocol event.
        patience: how long a round waits.
    """
    erasure = lineage.newest
    link = config.uplink.link(config.method, problem.dim)
    go_on = partial(
        rounds, problem.task, problem.holdings,
        seed=config.seed, engine=engine, note=note, patience=patience, absent=set[int](),
    )  # fmt: skip
    if state.round < erasure.last_visit:
        forgetting = _forgetting(config.method, erasure)
        # What is left of a site is the error-feedback memory of its taking back: a second one would count it twice.
        taking = erasure.method == "take-back"
        own = replace(link, feedback=False) if link is not None and taking else link
        while state.round < erasure.last_visit:
            among = [_whose_turn(erasure, state.round - erasure.start)]
            visits = go_on(forgetting, Schedule(), state=state, link=own, among=among, escrow=taking)
            state, told = next(visits)
            if state.round == erasure.last_visit:
                sizes = contribution_sizes(state, config.method, erasure.agents)
                note("forgot", round=state.round, site_norms=sizes)
                state = _let_go(state, problem, config.method, lineage, config.recording.escrow)
            yield state, told
    window = config.posterior.length(config.method.particles)
    escrow = config.recording.escrow
    repairing = config.method.annealed_anew(erasure.last_visit, config.rounds - erasure.last_visit or None)
    yield from go_on(repairing, config.schedule, state=state, link=link, escrow=escrow, window=window)


def _let_go(state: State, problem: Problem, method: Method, lineage: Lineage, escrow: bool) -> State:
    """After the last visit of the agents that leave: what was taken back is subtracted or handed over."""
    erasure, holdings = lineage.newest, problem.holdings
    leaving = [memory for agent in erasure.agents if ESCROW in (memory := state.memories.get(agent, {}))]
    memories = state.memories.without(erasure.agents)
    if erasure.method != "take-back" or not leaving:
        return replace(state, memories=memories)
    total = torch.stack([memory[ESCROW] for memory in leaving]).sum(0)
    without = state.particles - total
    if erasure.by == "agent":  # they have subtracted it already, and the escrow is what they subtracted
        without, total = state.particles, -total
    if not erasure.handover:
        return replace(state, particles=without, memories=memories)
    count = len(holdings.present)
    portion = method.portion(total, count, problem.task.prior)
    changed = {}
    for agent in holdings.present:
        memory = memories.get(agent, {})
        if holdings.remote:  # the agent takes it over itself, once, when it is next asked for a visit
            changed[agent] = {**memory, f"{HANDED_OVER}{len(lineage.erasures)}": portion}
        else:
            changed[agent] = method.take_over(memory, portion)
        if escrow or ESCROW in memory:  # it goes on to be the sum of all that the contribution stands for
            part = total / count
            changed[agent][ESCROW] = memory[ESCROW] + part if ESCROW in memory else part
    return replace(state, particles=without + total, memories=memories.put(changed))


def contribution_sizes(state: State, method: Method, agents: Sequence[int]) -> dict[str, float]:
    """How large what agents have to take back is; empty where there is nothing."""
    memories = {agent: state.memories[agent] for agent in agents if agent in state.memories}
    sizes = {agent: method.contribution_size(memory) for agent, memory in memories.items()}
    return {str(agent): size for agent, size in sizes.items() if size is not None}


def _whose_turn(erasure: Erasure, done: int) -> int:
    """The letter's agents alternate. Guarded ones forget one after the other: each has an anchor of its own."""
    if erasure.method == "forget-svgd" and not erasure.guarded:
        return erasure.agents[done % len(erasure.agents)]
    return erasure.agents[done * len(erasure.agents) // erasure.rounds]


def _forgetting(method: Method, erasure: Erasure) -> Method:
    """What the agents that forget do, with the settings that the run was trained with."""
    if erasure.method == "retrain":
        return method
    return FORGETTING[erasure.method].of(method, erasure.guarded)
