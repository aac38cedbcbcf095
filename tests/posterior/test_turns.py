"""Turns: when one ends, what its mean is, which of them make the window."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedstein import Posterior
from fedstein.posterior import Turns, members
from fedstein.protocol.schedule import Schedule


def walk(visits, agents, moved=None, keep=1000, last_only=False, values=None):
    """The turns after so many rounds, in which round r leaves the value r (or `values`) behind."""
    turns = Turns()
    for round, count in enumerate(visits, start=1):
        value = float(round if values is None else values[round - 1])
        moves = moved is None or moved[round - 1]
        turns = turns.after(round, torch.full((2, 3), value), visits=count, agents=agents, moved=moves, keep=keep,
                            last_only=last_only)  # fmt: skip
    return turns


def ends(turns):
    return [(turn.first, turn.last) for turn in turns.whole]


@pytest.mark.parametrize(
    ("agents", "each", "lengths"),
    [(10, 1, [10, 10, 10]), (10, 10, [1, 1, 1]), (10, 5, [2, 2, 2]), (10, 3, [4, 3, 3, 4, 3, 3]), (1, 1, [1, 1])],
)
def test_a_turn_is_as_many_visits_as_there_are_agents(agents, each, lengths):
    turns = walk([each] * sum(lengths), agents)
    assert [last - first + 1 for first, last in ends(turns)] == lengths


@settings(max_examples=60)
@given(agents=st.integers(1, 12), each=st.integers(1, 12), rounds=st.integers(1, 80))
def test_turns_keep_step_with_the_round_robin(agents, each, rounds):
    """After any number of rounds as many turns are whole as every agent was visited, and no round is in two of them."""
    each = min(each, agents)
    turns, schedule = walk([each] * rounds, agents), Schedule(agents_per_round=each)
    visited = [0] * agents
    for round in range(rounds):
        for agent in schedule.pick(round, agents, 0):
            visited[agent] += 1
    assert turns.count == min(visited)
    where = [round for first, last in ends(turns) for round in range(first, last + 1)]
    assert where == list(range(1, len(where) + 1))


def test_the_mean_is_over_the_rounds_in_which_something_was_applied():
    turns = walk([1] * 8, 4, moved=[True, False, True, True, False, False, False, False])
    assert ends(turns) == [(1, 4)]  # nobody was there in the second turn: it is none
    assert turns.whole[0].mean()[0, 0] == pytest.approx((1 + 3 + 4) / 3)
    assert turns.count == 1


def test_a_sampler_keeps_its_draws():
    turns = walk([1] * 6, 3, last_only=True)
    assert [turn.mean()[0, 0].item() for turn in turns.whole] == [3.0, 6.0]


@settings(max_examples=40)
@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=60), st.integers(1, 9))
def test_means_are_means(values, agents):
    turns = walk([1] * len(values), agents, values=values)
    for (first, last), turn in zip(ends(turns), turns.whole, strict=True):
        expected = torch.tensor(values[first - 1 : last], dtype=torch.float64).mean()
        assert turn.mean()[0, 0].double().sub(expected).abs() <= 1e-5 * max(map(abs, values)) + 1e-6


def test_only_the_newest_are_kept_and_the_window_is_the_last_tenth():
    turns = walk([1] * 250, 1, keep=10)
    assert ends(turns) == [(round, round) for round in range(241, 251)]
    for count, meant in ((1, 1), (10, 1), (11, 2), (20, 2), (95, 10), (100, 10), (250, 10)):
        turns = walk([1] * count, 1, keep=10)
        assert len(turns.window(10)) == turns.meant(10) == meant
    assert turns.window(0) == ()
    assert len(turns.window(3)) == 3


@given(count=st.integers(0, 300), length=st.integers(1, 20))
def test_after_an_erasure_it_is_told_how_long_it_takes_until_the_window_is_whole(count, length):
    forgotten = Turns(count=count).forgotten()
    needed = forgotten.anew(length)
    turns = forgotten
    for more in range(1, needed + 1):
        assert len(turns.window(length)) < turns.meant(length)
        turns = turns.after(1000 + more, torch.zeros(1, 1), visits=1, agents=1, moved=True, keep=length)
    assert len(turns.window(length)) == turns.meant(length)
    assert all(turn.first > 1000 for turn in turns.whole)


# What predicts


def window_of(*values):
    """Chains of one parameter; a window of turns with these values."""
    turns = Turns()
    for round, value in enumerate(values, start=1):
        turns = turns.after(round, torch.tensor(value)[:, None], visits=1, agents=1, moved=True, keep=10)
    return Turns(turns.whole, count=100)


LAST = torch.tensor([[9.0], [9.0]])


def test_before_the_first_turn_the_particles_predict():
    for kind in ("window", "mean", "gaussian", "last"):
        assert torch.equal(members(Posterior(kind), LAST, Turns(), 3, 0), LAST)


def test_window_mean_and_last():
    turns = window_of((1.0, 10.0), (2.0, 20.0), (3.0, 60.0))
    assert members(Posterior(window=10, scale=1.0), LAST, turns, 3, 0).flatten().tolist() == [1, 10, 2, 20, 3, 60]
    assert members(Posterior(window=2, scale=1.0), LAST, turns, 3, 0).flatten().tolist() == [2, 20, 3, 60]
    # Each chain's means are twice as far from their middle, (2, 30), as they were; so are those of one chain by itself.
    assert members(Posterior(window=10, scale=2.0), LAST, turns, 3, 0).flatten().tolist() == [0, -10, 2, 10, 4, 90]
    assert members(Posterior(window=10), LAST, turns, 3, 0).flatten().tolist() == [1, 10, 2, 20, 3, 60]
    one = window_of((10.0,), (20.0,), (60.0,))
    assert members(Posterior(window=10), LAST[:1], one, 3, 0).flatten().tolist() == [-10, 10, 90]
    assert members(Posterior("mean", window=10), LAST, turns, 3, 0).flatten().tolist() == [2, 30]
    assert torch.equal(members(Posterior("last"), LAST, turns, 3, 0), LAST)


@given(st.integers(1, 12), st.integers(1, 200))
def test_no_window_needs_a_turn_that_was_let_go(length, count):
    """Whoever keeps them all and whoever keeps what is needed have the same window, always."""
    everything, needed = Turns(), Turns()
    for round in range(1, count + 1):
        step = {"visits": 1, "agents": 1, "moved": True}
        everything = everything.after(round, torch.full((1, 1), float(round)), **step, keep=1000)
        needed = needed.after(round, torch.full((1, 1), float(round)), **step, keep=length).needed(length)
        assert [turn.last for turn in needed.window(length)] == [turn.last for turn in everything.window(length)]
        assert len(needed.whole) == needed.meant(length)


def test_the_gaussian_has_the_windows_mean_and_covariance():
    """SWAG's covariance is half the diagonal, half the empirical one: what it is beside numpy's."""
    generator = torch.Generator().manual_seed(5)
    means = torch.randn(6, 1, 3, generator=generator) @ torch.tensor([[1.0, 0.8, 0], [0, 0.5, 0], [0, 0, 2.0]])
    turns = Turns()
    for round, mean in enumerate(means, start=1):
        turns = turns.after(round, mean, visits=1, agents=1, moved=True, keep=10)
    turns = Turns(turns.whole, count=100)
    settings = Posterior("gaussian", window=10, draws=1000, scale=1.0)
    drawn = torch.cat([members(settings, means[-1], turns, round, 7) for round in range(40)]).double()
    exact = means[:, 0].double().T.cov()
    wanted = 0.5 * exact + 0.5 * torch.diag(exact.diagonal())
    error = math.sqrt(2 / len(drawn)) * exact.diagonal().max()
    assert (drawn.mean(0) - means[:, 0].double().mean(0)).abs().max() < 4 * exact.diagonal().max().sqrt() / 200
    assert (drawn.T.cov() - wanted).abs().max() < 4 * error
    twice = members(Posterior("gaussian", window=10, scale=2.0), means[-1], turns, 1, 7)
    once = members(Posterior("gaussian", window=10, scale=1.0), means[-1], turns, 1, 7)
    middle = means.mean(0)
    assert torch.allclose(twice - middle, 2 * (once - middle), atol=1e-6)
    assert torch.equal(twice, members(Posterior("gaussian", window=10), means[-1], turns, 1, 7))  # a derived stream


def test_many_chains_need_a_short_window():
    assert [Posterior().length(chains) for chains in (1, 2, 5, 10, 40)] == [10, 10, 4, 2, 1]
    assert Posterior(window=7).length(40) == 7
    assert Posterior("last", window=7).length(1) == 0
