"""Turns, and the means over them that the server keeps.

A turn is as many visits as there are agents to be visited: every agent once where they come in turn, and so often on
average where they are drawn. Its rounds are whole rounds; the visits that the last of them has too many count for the
next turn, so that turns keep step with the schedule (10 agents, 3 a round: turns of 4, 3 and 3 rounds). Where all
agents visit in every round, and with central methods, every round is a turn. Who was asked and did not answer had its
chance: the turn goes on without. A round in which nothing was applied is no step of the way, and is left out of the
mean.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from fedstein.slots import Slot

__all__ = ["MEAN", "Turn", "Turns"]

MEAN = "particles"  # the name of a turn's mean in its slot


@dataclass(frozen=True, repr=False)
class Turn:
    """A whole turn: its rounds, counted from 1, and the mean of the particles after them."""

    first: int
    last: int
    slot: Slot

    def mean(self) -> Tensor:
        """(N_p, d)."""
        return self.slot.get()[MEAN]


@dataclass(frozen=True, repr=False)
class Turns:
    """The newest whole turns, and the one under way."""

    whole: tuple[Turn, ...] = ()  # the newest, oldest first
    count: int = 0  # of all whole turns so far, those before an erasure included
    visits: int = 0  # of the turn under way
    first: int = 0  # its first round; 0 before there is one
    rounds: int = 0  # of it, in which something was applied
    mean: Tensor | None = None  # over these

    def after(
        self,
        round: int,
        particles: Tensor,
        *,
        visits: int,
        agents: int,
        moved: bool,
        keep: int,
        last_only: bool = False,
    ) -> Turns:
        """With one more round.

        Args:
            round: which, counted from 1.
            particles: after it.
            visits: that were scheduled in it.
            agents: that there are to be visited.
            moved: whether anything was applied.
            keep: the whole turns that are kept.
            last_only: a turn stands for the particles at its end, not for their mean: they are draws already.
        """
        first, visits, rounds, mean = self.first or round, self.visits + visits, self.rounds, self.mean
        if moved:
            rounds += 1
            mean = particles if mean is None or last_only else mean + (particles - mean) / rounds
        if visits < agents:
            return replace(self, visits=visits, first=first, rounds=rounds, mean=mean)
        if mean is None:  # a turn without a single upload says nothing
            return Turns(self.whole, self.count, visits % agents)
        ended = Turn(first, round, Slot({MEAN: mean}))
        return Turns((*self.whole, ended)[-keep:], self.count + 1, visits % agents)

    def meant(self, length: int) -> int:
        """How many turns the window is meant to have: the last tenth of the way, one at least, `length` at most."""
        return min(length, max(1, -(-self.count // 10)))

    def window(self, length: int) -> tuple[Turn, ...]:
        """The turns that stand for the posterior; fewer than meant after a beginning or an erasure."""
        return self.whole[-self.meant(length) :] if length else ()

    def needed(self, length: int) -> Turns:
        """Without the whole turns that no window goes back to, now or later: a window's beginning never goes back."""
        return replace(self, whole=self.window(length))

    def anew(self, length: int) -> int:
        """After how many more turns the window is whole, if it is made anew."""
        more = min(length, 1)
        while more < replace(self, count=self.count + more).meant(length):
            more += 1
        return more

    def forgotten(self) -> Turns:
        """None of the means, which remember; only how long the way was."""
        return Turns(count=self.count)
