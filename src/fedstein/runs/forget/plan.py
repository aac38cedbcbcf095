"""From a run and a request to the config and the lineage of a new run."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import get_args

from fedstein.coding import plan
from fedstein.errors import UserError
from fedstein.protocol.agent import RESIDUAL
from fedstein.protocol.state import ESCROW, State
from fedstein.runs.problem import Problem
from fedstein.settings import Config, make_config, to_table
from fedstein.store.lineage import Erasure, Forgetting, Lineage, Side

__all__ = ["plan_erasure"]

SHARE = 0.2  # of training's rounds, what the repair takes: its uploads stay under a quarter of retraining's


def plan_erasure(
    config: Config,
    lineage: Lineage,
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
) -> tuple[Config, Lineage]:
    """The config and the lineage of the new run. What is None is chosen to suit the method and the run.

    Args:
        config: of the run that is to forget.
        lineage: the erasures behind it.
        problem: what it has learnt, from whom.
        state: where it is.
        agents: who asked to be forgotten.
        method: how.
        by: who takes a contribution back.
        rounds: in which the agents forget.
        repair: rounds of those who stay, after that.
        handover: what is taken back is shared out; else it is subtracted.
        guarded: false is Forget-SVGD as the letter writes it.
        keep_parent: nothing is purged from the run that it begins from.
        overrides: of keys that do not change who is learnt from: `uplink.`, `posterior.`, `evaluation.`, `recording.`
            and `device`.
        still_known: agents of an erasure before that never answered: they may be asked again.
        parent: the run folder that it begins from.
        parent_sha256: of the particles there.

    Raises:
        UserError: the agents are not there, or the run has not what the method needs.
    """
    agents = tuple(agents)
    for word, value, known in (("method", method, get_args(Forgetting)), ("by", by, (None, *get_args(Side)))):
        if value not in known:
            words = ", ".join(str(one) for one in known if one is not None)
            raise UserError(f"The '--{word}' must be one of {words}. Got {value!r} instead.")
    _refuse_agents(problem, agents, still_known)
    for override in overrides:
        if not override.startswith(("uplink.", "posterior.", "evaluation.", "recording.", "device=")):
            raise UserError(
                f"The '--set' of an erasure must be of uplink, posterior, evaluation or recording, or the device: the "
                f"rest is the run's that forgets. Got {override!r} instead."
            )
    if by is None:
        by = "server" if method == "take-back" and config.recording.escrow else "agent"
    _refuse_method(config, problem, state, agents, method, by)
    _refuse_options(method, by, rounds, repair, handover, guarded)
    start = 0 if method == "retrain" else state.round
    training = lineage.training_rounds(config.rounds)
    if rounds is None:
        rounds = len(agents) * {"forget-svgd": 10, "take-back": _uploads(config, problem.dim)}.get(method, 0)
    if method == "retrain" or (method == "take-back" and by == "server"):
        rounds = 0
    elif rounds < len(agents):
        raise UserError(f"The '--rounds' must be at least {len(agents)}, one for each agent. Got {rounds} instead.")
    staying = len(set(problem.holdings.present) - set(agents))
    count = min(config.schedule.agents_per_round, staying)
    posterior = make_config(to_table(config), overrides).posterior
    if method == "forget-svgd" and not repair:  # nobody who stays makes a window: the last particles are all there is
        posterior = posterior.model_copy(update={"from_": "last"})
    turns = state.turns.anew(posterior.length(config.method.particles))
    window = math.ceil(turns * staying / count)  # rounds in which it is made anew
    if repair is None:
        repair = max(int(training * SHARE), 1, 2 * window) if method == "take-back" else 0
    if method == "take-back" and repair < 1:
        raise UserError("The '--repair' must be at least 1: without it the model is of no use. Got 0 instead.")
    if method == "retrain":
        repair = 0
    elif repair < window:
        raise UserError(
            f"The '--repair' must be at least {window}: what predicts is a window of {turns} turn mean"
            f"{'s' * (turns > 1)}, which is made anew by those who stay. Got {repair} instead. "
            "'--set posterior.from=last' does without."
        )
    erasure = Erasure(
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
    every = config.evaluation.every
    planned = config.model_copy(
        update={
            "rounds": training if method == "retrain" else erasure.end,
            "posterior": posterior,
            "schedule": config.schedule.model_copy(update={"agents_per_round": count}),
            "evaluation": config.evaluation.model_copy(
                update={"every": every if method == "retrain" else min(every, max(1, (rounds + repair) // 20))}
            ),
        }
    )
    if problem.holdings.remote:  # agents elsewhere cannot go back to an older checkpoint
        overrides = [*overrides, "recording.checkpoint_every=1"]
    # Checked again: the limits of every key hold for what was planned as well.
    return make_config(to_table(planned), overrides), lineage.with_one_more(erasure)


def _refuse_agents(problem: Problem, agents: tuple[int, ...], still_known: Collection[int]) -> None:
    holdings = problem.holdings
    last = len(holdings.agents) - 1
    for agent in agents:
        if not 0 <= agent <= last:
            raise UserError(f"The '--agents' must be in 0..{last}. Got {agent} instead.")
        if agent in holdings.erased and agent not in still_known:
            raise UserError(f"The agent {agent} was forgotten already. Coming back makes it a new agent.")
        if agents.count(agent) > 1:
            raise UserError(f"The '--agents' names agent {agent} twice.")
    if not agents:
        raise UserError("The '--agents' must name at least one agent. Got none.")
    if not set(holdings.present) - set(agents):
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
    if not config.method.forgets_by:
        raise UserError(
            f"The '--method' {method} needs a run of dsvgd; this one is of {config.method.name}. Use retrain."
        )
    if state.round == 0:
        raise UserError("The run has no rounds yet: there is nothing to forget. Use retrain.")
    if method == "forget-svgd":
        if by == "server":
            raise UserError("The '--by' server needs take-back: Forget-SVGD works on the agent's own data.")
        return
    if method not in config.method.forgets_by:
        raise UserError(
            f"The '--method' take-back needs a factor that says what each agent has changed, 'linear' for instance. "
            f"This run has '{getattr(config.method, 'factor', 'no')}' factors. Use forget-svgd or retrain."
        )
    if problem.holdings.remote and by == "agent":
        return  # only the agent knows whether its site is there
    place = "the server's escrow" if by == "server" else "the agent's site"
    for agent in agents:
        memory = state.memories.get(agent, {})  # empty: it never took part, and there is nothing to take back
        there = ESCROW in memory if by == "server" else config.method.contribution(memory)
        if not there and memory.keys() - {RESIDUAL}:
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


def _uploads(config: Config, dim: int) -> int:
    """How many uploads carry a whole contribution: one without a budget, else enough for every entry three times."""
    link = config.uplink.link(config.method, dim)
    if link is None:
        return 1
    contract = link.contract.per_group() if link.contract.can_be_common else link.contract
    return 3 * math.ceil(dim / plan(contract).kept)
