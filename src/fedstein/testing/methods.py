"""Does a method of one's own keep what the protocol asks of it?

>>> from fedstein.methods import FedAvg
>>> check_method(FedAvg)
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from fedstein.data import Examples, Holdings
from fedstein.data.synthetic import GaussianMean, negative
from fedstein.engines import Local
from fedstein.errors import UserError
from fedstein.methods import METHODS, Memory, Method, Visit
from fedstein.models import DenseStack, Task, TorchModule
from fedstein.protocol import ESCROW, RESIDUAL, Memories, Schedule, State
from fedstein.protocol.messages import HANDED_OVER
from fedstein.protocol.server import rounds, start
from fedstein.settings import Config, make_config, to_table
from fedstein.streams import stream
from fedstein.testing.parts import that, working

__all__ = ["check_memory", "check_method", "classifier_problem", "gaussian_problem", "visit_of"]

_SMALL = {"particles": 3, "local_steps": 2, "batch": 10}


def check_method(kind: type[Method], **settings: Any) -> None:
    """A method is settings and pure functions: same seed same bits, whenever it was stopped, whoever the agents are.

    Args:
        kind: the class.
        settings: to check it with, where others than its defaults are meant; it is made small where it can be.

    Raises:
        AssertionError: with a sentence that says what is wrong.
    """
    method = _check_settings(kind, settings)
    for task, agents in (classifier_problem(), gaussian_problem()):
        holdings = Holdings(agents)
        with working("check()"):
            method.check(task.prior)
        _check_start(method, task)
        _check_visits(method, task, holdings.pooled() if method.central else agents[0], len(agents))
        _check_runs(method, task, holdings)
    task, (first, *_) = classifier_problem()
    one_class = first.take((first.y == first.y[0]).nonzero()[:, 0])
    for name, poor in (("one example", first.take(torch.arange(1))), ("one class", one_class)):
        with working(f"With an agent that has {name}, a run"):
            last = _run(method, task, Holdings([poor, first]), 4)[-1]
        that(torch.isfinite(last.particles).all(), f"With an agent that has {name}, particles are not finite.")


def _check_settings(kind: type[Method], settings: dict[str, Any]) -> Method:
    """The method, small; its settings are frozen, know all their names, and survive JSON."""
    for word in ("name", "summary"):
        text = getattr(kind, word, None)
        that(isinstance(text, str) and text, f"A method must say its {word}. Got {text!r}.")
    for name, value in _SMALL.items():
        try:
            kind(**{name: value, **settings})
        except UserError:
            continue  # it knows only one value of it, as a round of QLSD is always one step
        settings = {name: value, **settings}
    with working("Making the method"):
        method = kind(**settings)
    try:
        kind(**(settings | {"no_such_setting": 1}))
    except UserError:
        pass
    else:
        raise AssertionError("Settings must refuse names that they do not know. They take 'no_such_setting'.")
    try:
        method.particles = 7  # type: ignore[misc]
    except ValueError:  # pydantic's
        pass
    else:
        raise AssertionError("Settings must be frozen. They let 'particles' be changed.")
    with working("Reading the settings back from JSON"):
        again = kind.model_validate(json.loads(method.model_dump_json(exclude_none=True)))
    that(again == method, f"Settings must be the same after JSON. Got {again!r} instead of {method!r}.")
    if kind.name in METHODS and METHODS[kind.name] is kind:
        with working("Reading the settings back from a config"):
            config = make_config(json.loads(json.dumps(to_table(Config(method=method)))))
        same = type(config.method) is kind and config.method == method
        that(same, f"Settings must be the same after a config. Got {config.method!r} instead of {method!r}.")
    return method


def _check_start(method: Method, task: Task) -> None:
    with working("start()"):
        first, again, other = (method.start(task, stream(seed, "particles")) for seed in (1, 1, 2))
    shape = (method.particles, task.model.dim)
    that(tuple(first.shape) == shape, f"start() must give {shape}. Got {tuple(first.shape)}.")
    that(first.dtype == torch.float32 and torch.isfinite(first).all(), "start() must give finite float32 particles.")
    that(torch.equal(first, again), "start() must draw from its generator alone. A second call differs.")
    that(not torch.equal(first, other), "start() must draw from its generator. Another seed gives the same.")


def _check_visits(method: Method, task: Task, data: Examples, agents: int) -> None:
    """Three visits of one agent, by hand: what it is given stays as it was, what it gives is sound."""
    particles, memory = method.start(task, stream(0, "particles")), Memory()
    for round in range(3):
        visit = visit_of(task, data, particles, memory, round, agents)
        before, remembered = particles.clone(), {name: value.clone() for name, value in memory.items()}
        with working("visit()"):
            moved = method.visit(visit)
        _sound(moved, before, "visit()")
        with working("settle()"):
            kept = method.settle(visit, 0.5 * (moved - before))
        that(torch.equal(particles, before), "visit() or settle() changes visit.particles: they are everybody's.")
        same = memory.keys() == remembered.keys() and all(torch.equal(memory[key], remembered[key]) for key in memory)
        that(same, "visit() or settle() changes visit.memory: an upload that is refused must leave it as it was.")
        check_memory(kept)
        with working("server_step()"):
            stepped = method.server_step(before + 0.5 * (moved - before), stream(0, "server", round))
        _sound(stepped, before, "server_step()")
        particles, memory = stepped, kept
    that(method.remembers or not memory, "A method whose settle() keeps something must say so: remembers.")
    if method.can_be_taken_back:
        _check_shares(method, memory, particles, task)


def _check_shares(method: Method, memory: Memory, total: Tensor, task: Task) -> None:
    size = method.contribution_size(memory)
    that(method.contribution(memory), "contribution() must find what the agent keeps, if it can be taken back.")
    that(size is not None and size >= 0, f"contribution_size() must be a number then. Got {size!r}.")
    with working("portion() or take_over()"):
        whole = method.take_over(memory, method.portion(total, 1, task.prior))
        parts = method.take_over(memory, method.portion(total, 2, task.prior))
        parts = method.take_over(parts, method.portion(total, 2, task.prior))
    for name, value in method.contribution(whole).items():
        that(torch.allclose(value, parts[name], atol=1e-4), f"Two portions of two must be the whole. '{name}' is not.")


def _check_runs(method: Method, task: Task, holdings: Holdings) -> None:
    first = start(task, method, 1).particles
    with working("A run"):
        whole, again, other = (_run(method, task, holdings, 5, seed) for seed in (1, 1, 2))
    that(torch.equal(whole[-1].particles, again[-1].particles), "The same seed must give the same bits. It does not.")
    that(not torch.equal(whole[-1].particles, other[-1].particles), "Another seed must give other particles.")
    that(not torch.equal(whole[0].particles, first), "A round must move the particles. They are where they were.")
    for state in whole:
        _sound(state.particles, first, "A round")
    for stop in (0, 2):
        stopped = _through_a_file(whole[stop])
        with working("Going on with a run that was stopped"):
            last = _run(method, task, holdings, 4 - stop, 1, stopped)[-1]
        same = torch.equal(last.particles, whole[-1].particles)
        that(same, "A run that was stopped and gone on with must end with the same bits. It does not.")


def _run(
    method: Method, task: Task, holdings: Holdings, count: int, seed: int = 0, state: State | None = None
) -> list[State]:
    state = start(task, method, seed) if state is None else state
    engine = Local(task, holdings, method.central)
    schedule = Schedule(order="random", agents_per_round=1 if method.central else 2)
    return [now for now, _ in islice(rounds(task, holdings, method, schedule, seed, state, engine), count)]


def _through_a_file(state: State) -> State:
    """As a checkpoint keeps it: nothing but the tensors themselves."""
    with working("Saving what agents keep"):
        files = {
            agent: save({name: value.contiguous() for name, value in m.items()}) for agent, m in state.memories.items()
        }
    kept = {agent: load(content) for agent, content in files.items()}
    return replace(state, particles=state.particles.clone(), memories=Memories().put(kept))


def _sound(particles: Tensor, before: Tensor, what: str) -> None:
    that(isinstance(particles, Tensor), f"{what} must give a tensor. Got {type(particles).__name__}.")
    shape, dtype = tuple(particles.shape), particles.dtype
    that(shape == tuple(before.shape), f"{what} must keep the shape {tuple(before.shape)}. Got {shape}.")
    that(dtype == before.dtype, f"{what} must keep the type {before.dtype}. Got {dtype}.")
    that(torch.isfinite(particles).all(), f"{what} gives particles that are not finite.")


def check_memory(memory: Memory, names: tuple[str, ...] | None = None) -> None:
    """What an agent keeps: finite float32 tensors under names of its own; these names and no others, if given."""
    that(isinstance(memory, dict), f"settle() must give a dict of tensors. Got {type(memory).__name__}.")
    if names is not None:
        that(set(memory) == set(names), f"settle() must keep what `keeps` names, {list(names)}. Got {list(memory)}.")
    for name, value in memory.items():
        ours = isinstance(name, str) and name not in (RESIDUAL, ESCROW) and not name.startswith(HANDED_OVER)
        that(ours, f"settle() must use a name of its own. Got {name!r}, which the protocol uses.")
        fits = isinstance(value, Tensor) and value.dtype == torch.float32 and bool(torch.isfinite(value).all())
        that(fits, f"settle() must keep finite float32 tensors. '{name}' is none.")


def visit_of(task: Task, data: Examples, particles: Tensor, memory: Memory, round: int, agents: int) -> Visit:
    """A visit of agent 0, which is one of two in its round."""
    draws = partial(stream, 0, round=round, agent=0)
    return Visit(task.model, data, task.prior, particles, memory, round, agents, (0.5, 0.5), draws)


def classifier_problem() -> tuple[Task, list[Examples]]:
    """Three classes that a small network can tell apart, 25 examples an agent."""
    generator = stream(0, "classifier")
    x = torch.randn((75, 6), generator=generator)
    y = (x @ torch.randn((6, 3), generator=generator)).argmax(1)
    data = Examples(x, y)
    return Task(DenseStack([6, 5, 3])), [data.take(torch.arange(k, 75, 3)) for k in range(3)]


def gaussian_problem() -> tuple[Task, list[Examples]]:
    """A mean in two dimensions, through the path of any torch module."""
    gaussian = GaussianMean.draw(3, 12, 2, stream(0, "gaussian"))
    return Task(TorchModule(gaussian.module(), negative), gaussian.prior, "prior"), list(gaussian.agents)
