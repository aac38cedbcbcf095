"""Every engine does the same: the same particles, the same bills, bit for bit; and faults leave both ends in step."""

from __future__ import annotations

import json
import random
import shutil
import time
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedstein.data import Examples, who_has_what
from fedstein.deploy.flower.agent_store import _load, _read, purge_agent, visit_as_agent
from fedstein.engines import Local
from fedstein.engines.ray import Rays, on_ray
from fedstein.errors import DivergedError, OrderError, SilenceError, UserError
from fedstein.models import FEATURES, digest
from fedstein.protocol import ESCROW, Answer, Failure, Order, Patience, Schedule, Terms
from fedstein.protocol.messages import HANDED_OVER
from fedstein.protocol.server import rounds, start
from fedstein.protocol.wire import About, Reply, head_of, read_head
from fedstein.runs.forget.plan import plan_erasure
from fedstein.runs.forget.rounds import erasure_rounds, first_state
from fedstein.runs.network_files import NetworkFiles
from fedstein.runs.problem import build_problem
from fedstein.settings import make_config
from fedstein.store.lineage import Lineage

BASE = (
    "data.name=digits",
    "data.agents=4",
    "data.examples=40",
    "model.hidden=[]",
    "threads=1",
    "method.particles=3",
    "method.local_steps=2",
    "rounds=9",
)
SETTINGS = {
    "flat": ("uplink.budget=1.0d",),
    "plain": (),
    "linear": ("method.factor=linear", "uplink.budget=2.0d", "uplink.feedback=true", "schedule.agents_per_round=3"),
    "bootstrap": ("method.factor=linear", "method.resample=bootstrap", "prior.init=prior", "uplink.budget=2.0d"),
    "kde": ("method.factor=kde", "method.distil_steps=3", "uplink.budget=2.0d", "schedule.agents_per_round=2"),
    "informed": (
        "uplink.budget=1.0d",
        "uplink.feedback=true",
        "uplink.positions=informed",
        "uplink.entries=adaptive",
        "uplink.common=true",
    ),
    "fedavg": ("method.name=fedavg", "method.particles=1", "uplink.budget=1.0d", "schedule.order=random"),
    "dsgld": ("method.name=dsgld", "method.step_size=1e-6", "uplink.budget=2.0d", "schedule.agents_per_round=2"),
}
pytestmark = [
    pytest.mark.filterwarnings(
        "ignore::FutureWarning:ray", "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
    ),
]
IMPATIENT = Patience(seconds=5.0, retries=1, pause=0.0)


RUN, MODEL = "a" * 32, "b" * 32


class Homes:
    """Agents that remember for themselves, in one process: all of the Flower engine but Flower.

    Orders and answers go through the same forms as over a network, and each agent has a folder of its own.
    """

    agents_remember = True

    def __init__(self, problem, state, config=None, run=RUN, model_id=MODEL, raw=None):
        self.raw = problem.holdings.agents if raw is None else raw
        self.problem, self.state, self.run, self.model_id = problem, state, run, model_id
        self.config = make_config() if config is None else config
        self.answers = []
        self.have_frozen = set()  # as the Flower engine does it: only the first order brings them
        self.here = set(range(len(problem.holdings.agents)))

    def roster(self):
        return self.here

    def send(self, orders):
        for order in orders:
            self.answers += self.deliver(order)

    def deliver(self, order):
        """One order reaches its agent; what comes back. Tests make this a bad network."""
        return [self.visit(order)]

    def visit(self, order):
        name = f"agent-{order.agent}"
        data = self.raw[order.agent]
        head = head_of(order, about(self.config, data, self.problem), self.run, self.model_id, name)
        try:
            reply = visit_as_agent(
                self.state / name,
                read_head(head.to_json()),
                order.particles.clone(),
                lambda network, home: data if network.prepare is None else Examples(network.prepare(data.x), data.y),
                frozen=None if order.agent in self.have_frozen else self.problem.network_files.frozen,
                portions={key: value.clone() for key, value in order.memory.items()},
            )
        except DivergedError as error:
            return Failure(order.agent, order.round, str(error), diverged=True)
        except UserError as error:
            return Failure(order.agent, order.round, str(error))
        self.have_frozen.add(order.agent)
        words = Reply.model_validate_json(Reply.of(reply, self.run).model_dump_json())
        return words.answer(reply.frame, order, self.run)

    def collect(self, seconds):
        answers, self.answers = self.answers, []
        return answers

    def settle(self, agent, outcome):
        pass

    def remembered(self):
        return {}


def about(config, data, problem):
    shape, classes = data.x.shape[1:], problem.task.model.sizes[-1]
    frozen = problem.network_files.frozen
    named = None if frozen is None else digest(frozen)
    return About(config.uplink, config.model, config.prior, config.likelihood, config.threads, shape, classes, named)


class Seen:
    """The state after a round, and what was told about it, as one."""

    def __init__(self, state, told):
        self.state, self.told = state, told

    def __getattr__(self, name):
        return getattr(self.told if name in ("uploads", "frames") else self.state, name)


def states(config, problem, count, engine=None, state=None, **more):
    state = start(problem.task, config.method, config.seed) if state is None else getattr(state, "state", state)
    engine = Local(problem.task, problem.holdings) if engine is None else engine
    link = config.uplink.link(config.method, problem.dim)
    terms = (config.method, config.schedule, config.seed, state, engine)
    run = rounds(problem.task, problem.holdings, *terms, link=link, **more)
    return [Seen(*one) for one in islice(run, count)]


def made_again(config):
    problem = build_problem(config)
    return problem.task, problem.holdings


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def cluster():
    with on_ray("local", 2) as ray:
        yield ray


@pytest.mark.parametrize("name", SETTINGS)
def test_agents_that_remember_for_themselves_give_the_same_bits(name, tmp_path):
    config = make_config(overrides=[*BASE, *SETTINGS[name]])
    problem = build_problem(config)
    here = states(config, problem, 9)
    there = states(config, problem, 9, Homes(problem, tmp_path, config))
    for one, other in zip(here, there, strict=True):
        assert torch.equal(one.particles, other.particles)
        assert one.uploads == other.uploads
        assert one.frames == other.frames
        assert one.totals == other.totals
    assert not other.memories  # the server knows nothing of what they remember


def test_a_frozen_network_travels_with_the_order(tmp_path):
    more = ("model.hidden=[6]", "pretrain.rounds=1", "method.factor=linear", "uplink.budget=2.0d")
    config = make_config(overrides=[*BASE, *more])
    problem = build_problem(
        config,
        files=NetworkFiles(
            {FEATURES: torch.randn(64 * 6 + 6 + 6 * 10 + 10, generator=torch.Generator().manual_seed(0))}
        ),
    )
    assert problem.dim == 70
    engine = Homes(problem, tmp_path, config, raw=who_has_what(config.data, config.seed).agents)
    here, there = states(config, problem, 5), states(config, problem, 5, engine)
    assert torch.equal(here[-1].particles, there[-1].particles)
    for kept in tmp_path.glob("*/*/frozen.safetensors"):
        kept.unlink()
    with pytest.raises(SilenceError):  # the Flower engine would send them again
        states(config, problem, 5, engine, patience=IMPATIENT)


def test_other_frozen_values_than_the_order_is_about_are_refused(tmp_path):
    config = make_config(overrides=[*BASE, "model.hidden=[6]", "pretrain.rounds=1"])
    values = {FEATURES: torch.zeros(64 * 6 + 6 + 6 * 10 + 10)}
    problem = build_problem(config, files=NetworkFiles(values))
    engine = Homes(problem, tmp_path, config, raw=who_has_what(config.data, config.seed).agents)
    head = read_head(
        head_of(order_of(config, problem), about(config, engine.raw[0], problem), RUN, MODEL, "x").to_json()
    )
    values[FEATURES] += 1.0
    with pytest.raises(OrderError, match="not those that the order is about"):
        head.network(values)


@pytest.mark.parametrize("name", ["linear", "bootstrap", "kde", "informed"])
def test_ray_gives_the_same_bits(name, cluster):
    config = make_config(overrides=[*BASE, *SETTINGS[name]])
    problem = build_problem(config)
    engine = Rays(cluster, partial(made_again, config), len(problem.holdings.agents), actors=2)
    here, there = states(config, problem, 6), states(config, problem, 6, engine)
    for one, other in zip(here, there, strict=True):
        assert torch.equal(one.particles, other.particles)
        assert one.uploads == other.uploads
        assert one.memories.keys() == other.memories.keys()
        for agent in one.memories:
            assert one.memories[agent].keys() == other.memories[agent].keys()
            assert all(torch.equal(value, other.memories[agent][key]) for key, value in one.memories[agent].items())


def test_a_ray_actor_that_is_killed_takes_nothing_with_it(cluster):
    config = make_config(overrides=[*BASE, *SETTINGS["linear"]])
    problem = build_problem(config)
    engine = Rays(cluster, partial(made_again, config), len(problem.holdings.agents), actors=2)
    notes = []
    more = {"engine": engine, "note": lambda event, **about: notes.append(event), "patience": Patience(60.0, 5, 0.1)}
    killed = states(config, problem, 2, **more)
    for actor in engine._actors:
        cluster.kill(actor, no_restart=False)
    killed += states(config, problem, 4, state=killed[-1], **more)
    assert torch.equal(killed[-1].particles, states(config, problem, 6)[-1].particles)


def test_what_an_actor_raises_ends_the_run(cluster):
    config = make_config(overrides=[*BASE, "method.step=gradient", "method.step_size=1e29"])
    problem = build_problem(config)
    engine = Rays(cluster, partial(made_again, config), len(problem.holdings.agents), actors=1)
    with pytest.raises(DivergedError, match="no longer finite: round"):
        states(config, problem, 9, engine)


@pytest.mark.parametrize(
    ("method", "by", "handover"),
    [
        ("take-back", "agent", True),
        ("take-back", "agent", False),
        ("take-back", "server", True),
        ("take-back", "server", False),
        ("forget-svgd", "agent", True),
    ],
)
def test_an_erasure_gives_the_same_bits(method, by, handover, tmp_path):
    config = make_config(overrides=[*BASE, *SETTINGS["linear"], f"recording.escrow={str(by == 'server').lower()}"])
    problem = build_problem(config)
    engine = Homes(problem, tmp_path, config)
    escrow = config.recording.escrow
    here = states(config, problem, 9, escrow=escrow)[-1]
    there = states(config, problem, 9, engine, escrow=escrow)[-1]
    more = {"by": by, "rounds": 4 if by == "agent" else None, "repair": 3, "handover": handover}
    plan, lineage = plan_erasure(config, Lineage(), problem, here.state, [1], method, **more)
    count = plan.rounds - 9
    problem = replace(problem, holdings=replace(problem.holdings, erased=(1,)))
    away = replace(problem, holdings=replace(problem.holdings, remote=True))
    engine.problem, engine.run = problem, "c" * 32
    here, there = (
        first_state(seen.state, where, plan.method, lineage) for seen, where in ((here, problem), (there, away))
    )
    one = erasure_rounds(problem, plan, lineage, here, Local(problem.task, problem.holdings))
    other = [Seen(*now) for now in islice(erasure_rounds(away, plan, lineage, there, engine), count)]
    for (a, _), b in zip(islice(one, count), other, strict=True):
        assert torch.equal(a.particles, b.particles)
    # Whoever has visited since has got its share, and the server does not keep it any longer.
    kept = [memory for seen in [there, *other] for memory in seen.memories.values()]
    handed = [memory for memory in kept if f"{HANDED_OVER}1" in memory]
    assert bool(handed) == (method == "take-back" and handover)
    seen = {upload.agent for state in other[-3:] for upload in state.uploads}
    assert seen
    assert not {agent for agent in seen if any("hand" in name for name in other[-1].memories.get(agent, {}))}


def erased_from(problem, lineage, remote=False):
    return replace(problem, holdings=replace(problem.holdings, erased=lineage.erased, remote=remote))


@pytest.mark.parametrize("by", ["agent", "server"])
def test_who_leaves_takes_back_a_share_that_it_had_not_taken_over_yet(by, tmp_path):
    """Two erasures: an agent that has not visited since the first one is erased by the second."""
    config = make_config(
        overrides=[
            *BASE,
            "method.factor=linear",
            "posterior.from=last",
            f"recording.escrow={str(by == 'server').lower()}",
        ]
    )
    problem = build_problem(config)
    engine, escrow = Homes(problem, tmp_path, config), config.recording.escrow
    here = states(config, problem, 9, escrow=escrow)[-1].state
    there = states(config, problem, 9, engine, escrow=escrow)[-1].state
    lineage, leaving = Lineage(), 1
    for number, repair in enumerate((1, 12)):
        more = {"by": by, "rounds": 1 if by == "agent" else None, "repair": repair}
        before = erased_from(problem, lineage)
        plan, lineage = plan_erasure(config, lineage, before, here, [leaving], "take-back", **more)
        one, other = erased_from(problem, lineage), erased_from(problem, lineage, remote=True)
        engine.problem, engine.run = one, "cd"[number] * 32
        here = first_state(here, one, plan.method, lineage, escrow)
        there = first_state(there, other, plan.method, lineage, escrow)
        count = repair + (by == "agent")
        local = erasure_rounds(one, plan, lineage, here, Local(one.task, one.holdings))
        here = list(islice(local, count))[-1][0]
        there = list(islice(erasure_rounds(other, plan, lineage, there, engine), count))[-1][0]
        torch.testing.assert_close(here.particles, there.particles, atol=1e-6, rtol=1e-6)
        waiting = [agent for agent, memory in there.memories.items() if any(HANDED_OVER in name for name in memory)]
        assert bool(waiting) == (number == 0)
        leaving = waiting[-1] if waiting else leaving
    # All that was applied is somebody's: the sites of those who stay say where the particles are.
    first = start(problem.task, config.method, config.seed).particles
    sites = sum(memory["site"] for memory in here.memories.values()) / problem.task.prior.precision
    torch.testing.assert_close(here.particles - first, sites, atol=1e-5, rtol=1e-4)


def test_an_escrow_knows_of_a_share_whoever_has_visited(tmp_path):
    """An agent that had never visited gets a share of an erasure: the server's escrow of it must have it too."""
    config = make_config(
        overrides=[
            *BASE, "data.agents=5", "data.examples=30", "method.factor=linear", "recording.escrow=true",
            "posterior.from=last",
        ]
    )  # fmt: skip
    problem = build_problem(config)
    state = states(config, problem, 3, escrow=True)[-1].state
    lineage = Lineage()
    for leaving in (1, 4):
        plan, lineage = plan_erasure(
            config, lineage, erased_from(problem, lineage), state, [leaving], "take-back", by="server", repair=1
        )
        now = erased_from(problem, lineage)
        state = first_state(state, now, plan.method, lineage, escrow=True)
    first = start(problem.task, config.method, config.seed).particles
    sites = sum(memory["site"] for memory in state.memories.values()) / problem.task.prior.precision
    torch.testing.assert_close(state.particles - first, sites, atol=1e-5, rtol=1e-4)


def test_an_agent_takes_a_share_over_once(tmp_path):
    config = make_config(overrides=[*BASE, "method.factor=linear"])
    problem = build_problem(config)
    engine = Homes(problem, tmp_path, config)
    share = torch.ones(3, problem.dim)
    order = replace(order_of(config, problem), memory={f"{HANDED_OVER}1": share})
    sites = []
    for round in (0, 4, 8):  # each tells it that the one before was not applied
        assert isinstance(engine.visit(replace(order, round=round)), Answer)
        folder = tmp_path / "agent-0" / MODEL
        record = _read(folder, "agent-0")
        sites.append(_load(folder, "memory", record.number, record.memory)["site"])
    assert all(torch.equal(site, share) for site in sites)


def test_a_server_that_is_killed_in_any_round_goes_on_as_if_it_had_not_been(tmp_path):
    config = make_config(overrides=[*BASE, *SETTINGS["linear"]])
    problem = build_problem(config)
    whole = states(config, problem, 8)
    state = None
    for round in range(8):
        engine = Homes(problem, tmp_path, config)
        # Its agents have answered, and it is killed before it has noted that: nobody hears of the answers again.
        states(config, problem, 1, engine, state)
        state = states(config, problem, 1, Homes(problem, tmp_path, config), state)[-1]
        assert torch.equal(state.particles, whole[round].particles)


class BadNetwork(Homes):
    """Loses orders and answers, delivers answers late or twice, and damages frames."""

    def __init__(self, *args, chance, **more):
        super().__init__(*args, **more)
        self.chance, self.late = chance, []

    def deliver(self, order):
        kind = self.chance.choices(["well", "lost", "answer lost", "late", "twice", "garbage", "error"], [6, *[1] * 6])[
            0
        ]
        if kind == "lost":
            return [Failure(order.agent, order.round, "lost on the way")]
        if kind == "error":
            return [Failure(order.agent, order.round, "the agent's process has died")]
        answer = self.visit(order)
        late, self.late = self.late, []
        if kind == "answer lost":
            return [*late, Failure(order.agent, order.round, "its answer was lost")]
        if kind == "late":
            self.late = [answer]
            return [*late, Failure(order.agent, order.round, "too late")]
        if kind == "garbage" and isinstance(answer, Answer):
            answer = replace(answer, frame=self.chance.randbytes(len(answer.frame) + self.chance.randrange(-3, 40)))
        return [*late, answer, answer] if kind == "twice" else [*late, answer]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), several=st.booleans(), feedback=st.booleans())
def test_whatever_happens_both_ends_agree_on_what_was_applied(seed, several, feedback, tmp_path_factory):
    more = ("method.factor=linear", "uplink.budget=2.0d", f"uplink.feedback={str(feedback).lower()}")
    config = make_config(overrides=[*BASE, *more, f"schedule.agents_per_round={3 if several else 1}"])
    problem = build_problem(config)
    folder = tmp_path_factory.mktemp("agents")
    chance = random.Random(seed)
    engine = BadNetwork(problem, folder, config, chance=chance)
    state = None
    for _ in range(8):
        state = states(config, problem, 1, engine, state, escrow=True, patience=IMPATIENT)[-1]
        if chance.random() < 0.2:
            engine = BadNetwork(problem, folder, config, chance=chance)  # the server is started again
    first = start(problem.task, config.method, config.seed).particles
    applied = {agent: memory[ESCROW] for agent, memory in state.memories.items()}
    torch.testing.assert_close(state.particles - first, sum(applied.values(), torch.zeros_like(first)))
    # With one more order over a good network each agent learns what became of its last answer, and settles.
    good = Homes(problem, folder, config)
    link = config.uplink.link(config.method, problem.dim)
    for agent in range(4):
        terms = (config.method, Schedule(), config.seed, state.state, good)
        next(rounds(problem.task, problem.holdings, *terms, link=link, among=[agent]))
        record = _read(folder / f"agent-{agent}" / MODEL, f"agent-{agent}")
        site = _load(folder / f"agent-{agent}" / MODEL, "memory", record.number, record.memory).get("site")
        if agent in applied and applied[agent].any():
            torch.testing.assert_close(site, applied[agent] * problem.task.prior.precision)
        else:
            assert site is None or not site.any()


def test_the_rounds_go_on_without_an_agent_that_is_gone(tmp_path):
    config = make_config(overrides=[*BASE, *SETTINGS["linear"]])
    problem = build_problem(config)
    engine = Homes(problem, tmp_path, config)
    engine.here = {0, 2, 3}
    notes = []
    without = states(
        config,
        problem,
        4,
        engine,
        note=lambda event, **about: notes.append((event, about.get("agent"))),
        patience=Patience(0.3, 0, 0.05),
    )
    assert notes.count(("waiting", 1)) == 1  # once, with patience; after that nobody waits for it
    assert notes.count(("missed", 1)) == 3
    assert {upload.agent for state in without for upload in state.uploads} == {0, 2, 3}
    engine.here = {0, 1, 2, 3}
    later = states(config, problem, 4, engine, without[-1])
    assert any(upload.agent == 1 for state in later for upload in state.uploads)


def test_a_run_whose_agents_are_all_away_stops_and_says_so(tmp_path):
    config = make_config(overrides=[*BASE, *SETTINGS["linear"]])
    problem = build_problem(config)
    engine = Homes(problem, tmp_path, config)
    engine.here = set()
    with pytest.raises(SilenceError, match="No agent has answered in the last 2 rounds"):
        states(config, problem, 9, engine, patience=Patience(0.1, 0, 0.02))


def test_a_silent_agent_that_is_there_costs_little_after_the_first_time(tmp_path):
    config = make_config(overrides=[*BASE, *SETTINGS["linear"]])
    problem = build_problem(config)
    engine = Homes(problem, tmp_path, config)
    engine.deliver = lambda order: [] if order.agent == 1 else [engine.visit(order)]
    engine.collect = lambda seconds: (time.sleep(min(seconds, 0.01)), Homes.collect(engine, seconds))[1]
    waits = []
    for _ in range(3):
        absent = {1} if waits else set()
        began = time.monotonic()
        after = states(config, problem, 1, engine, patience=Patience(3.0, 0, 0.1, 0.0), absent=absent)
        waits.append(time.monotonic() - began)
    assert len(after[0].uploads) == 2
    assert waits[1] < 0.5 * waits[0]


def test_a_frame_that_would_ruin_the_particles_is_refused(tmp_path):
    config = make_config(overrides=[*BASE, "method.factor=linear"])
    problem = build_problem(config)
    engine = Homes(problem, tmp_path, config)
    huge = np.full((3, 650), 3.4e38, np.float32).tobytes()
    engine.deliver = lambda order: [replace(engine.visit(order), frame=huge if order.round == 0 else b"x")]
    after = states(config, problem, 2, engine)
    assert [state.uploads[0].refused for state in after] == [True, True]
    assert torch.equal(after[-1].particles, start(problem.task, config.method, 0).particles)


def test_an_agent_that_fails_is_asked_again(tmp_path):
    config = make_config(overrides=[*BASE, *SETTINGS["linear"]])
    problem = build_problem(config)
    failing = Homes(problem, tmp_path, config)
    asked = []

    def deliver(order):
        asked.append((order.round, order.agent))
        if asked.count((order.round, order.agent)) < 3:
            return [Failure(order.agent, order.round, "not now")]
        return [failing.visit(order)]

    failing.deliver = deliver
    after = states(config, problem, 4, failing, patience=Patience(20.0, 2, 0.0))
    assert torch.equal(after[-1].particles, states(config, problem, 4)[-1].particles)
    assert len(asked) == 3 * 12


class Stranger(Homes):
    """Answers that nobody has asked for: of rounds that are over, and of agents that there are not."""

    old = ()

    def collect(self, seconds):
        came = super().collect(seconds)
        before, self.old = self.old, came or self.old
        return [*before, *(replace(one, agent=99) for one in came), *came]


def test_answers_of_other_rounds_and_agents_are_ignored(tmp_path):
    config = make_config(overrides=[*BASE, *SETTINGS["linear"]])
    problem = build_problem(config)
    config = config.model_copy(update={"schedule": config.schedule.model_copy(update={"agents_per_round": 4})})
    after = states(config, problem, 4, Stranger(problem, tmp_path, config))
    assert torch.equal(after[-1].particles, states(config, problem, 4)[-1].particles)


def order_of(config, problem, round=0):
    link = config.uplink.link(config.method, problem.dim)
    state = start(problem.task, config.method, 0)
    return Order(0, round, Terms(config.method, 0, link), state.particles, 4, (1.0,))


def test_a_forgotten_agent_has_nothing_left_and_says_so(tmp_path):
    config = make_config(overrides=[*BASE, *SETTINGS["linear"]])
    problem = build_problem(config)
    engine = Homes(problem, tmp_path, config)
    assert isinstance(engine.visit(order_of(config, problem)), Answer)
    home = tmp_path / "agent-0" / MODEL
    assert {file.suffix for file in home.iterdir()} == {".json", ".safetensors", ""}
    assert purge_agent(tmp_path / "agent-0", MODEL, "agent-0") == 1
    assert sorted(file.name for file in home.iterdir()) == ["home.json", "lock"]
    refused = engine.visit(order_of(config, problem, 5))
    assert isinstance(refused, Failure)
    assert "was forgotten" in refused.reason
    assert purge_agent(tmp_path / "agent-0", MODEL, "agent-0") == 0


@pytest.mark.parametrize(("name", "refuses"), [("linear", True), ("kde", True), ("flat", False), ("fedavg", False)])
def test_an_agent_that_has_lost_its_memory_does_not_count_its_data_again(name, refuses, tmp_path):
    config = make_config(overrides=[*BASE, *SETTINGS[name], "schedule.order=round-robin"])
    problem = build_problem(config)
    engine = Homes(problem, tmp_path, config)
    before = states(config, problem, 5, engine)
    shutil.rmtree(tmp_path / "agent-1")
    notes = []
    more = {"note": lambda event, **about: notes.append((event, about)), "patience": IMPATIENT}
    states(config, problem, 4, engine, before[-1], **more)
    missed = [about["reason"] for event, about in notes if event == "missed"]
    assert bool(missed) == refuses
    assert all("has lost what it knew of this model" in reason and str(tmp_path) not in reason for reason in missed)
    assert ({about["agent"] for event, about in notes if event == "applied"} == {0, 2, 3}) == refuses


def test_an_agent_that_answers_late_is_waited_for_again(tmp_path):
    config = make_config(overrides=[*BASE, *SETTINGS["linear"], "schedule.agents_per_round=1"])
    problem = build_problem(config)
    engine = Homes(problem, tmp_path, config)
    late = []

    def deliver(order):
        if order.agent == 1 and not late:
            late.append(engine.visit(order))
            return []
        return [engine.visit(order)]

    def collect(seconds):
        time.sleep(min(seconds, 0.01))
        came = Homes.collect(engine, seconds)
        return [*late, *came] if came and came[0].agent == 2 else came

    engine.deliver, engine.collect = deliver, collect
    absent, notes = set(), []
    more = {"absent": absent, "note": lambda event, **about: notes.append((event, about.get("agent")))}
    states(config, problem, 3, engine, patience=Patience(0.3, 0, 0.1, 0.0), **more)
    assert ("missed", 1) in notes
    assert ("ignored", 1) in notes
    assert 1 not in absent


def test_an_agent_refuses_what_it_cannot_follow(tmp_path):
    config = make_config(overrides=[*BASE, *SETTINGS["linear"]])
    problem = build_problem(config)
    engine = Homes(problem, tmp_path, config)
    for round in (0, 4, 8):
        assert isinstance(engine.visit(order_of(config, problem, round)), Answer)
    assert "lost its newest checkpoints" in engine.visit(order_of(config, problem, 4)).reason
    assert isinstance(engine.visit(order_of(config, problem, 8)), Answer)  # the same again is no harm
    (tmp_path / "agent-0" / MODEL / "home.json").write_text('{"version": 1, "agent": "agent-7"}')
    assert "is of agent 'agent-7'" in engine.visit(order_of(config, problem, 9)).reason
    (tmp_path / "agent-0" / MODEL / "home.json").write_text("[" * 100_000)
    assert "is damaged" in engine.visit(order_of(config, problem, 9)).reason


@pytest.mark.parametrize(
    "change",
    [
        {"model_id": "../../etc"},
        {"model_id": "B" * 32},
        {"version": 1},
        {"method": {"name": "os.system"}},
        {"method": {"name": "dsvgd", "particles": -1}},
        {"model": {"features": "/etc/passwd"}},
        {"shares": [float("nan")]},
        {"shares": [7.0]},
        {"threads": 10**9},
        {"more": 1},
        {"round": -1},
    ],
)
def test_a_hostile_order_is_refused(change):
    config = make_config(overrides=[*BASE, *SETTINGS["linear"]])
    problem = build_problem(config)
    data = problem.holdings.agents[0]
    head = head_of(order_of(config, problem), about(config, data, problem), RUN, MODEL, "x")
    table = json.loads(head.to_json())
    assert read_head(json.dumps(table)) == head
    with pytest.raises(UserError, match="no order of protocol version"):
        read_head(json.dumps(table | change))


def test_local_is_the_default():
    config = make_config(overrides=[*BASE, *SETTINGS["linear"]])
    problem = build_problem(config)
    one, other = states(config, problem, 3), states(config, problem, 3, Local(problem.task, problem.holdings))
    assert torch.equal(one[-1].particles, other[-1].particles)
