"""Does an agent factor of one's own keep what DSVGD asks of it?

>>> from fedstein.methods import FACTORS
>>> check_factor(FACTORS["linear"])
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import torch
from torch import Tensor

from fedstein.inference import GaussianPrior
from fedstein.methods import DSVGD, FACTORS, Factor, Memory, Visit
from fedstein.streams import stream
from fedstein.testing.coding import registered
from fedstein.testing.methods import check_memory, check_method, gaussian_problem, visit_of
from fedstein.testing.parts import that, working

__all__ = ["check_factor"]

_numbers = itertools.count()


def check_factor(factor: Factor) -> None:
    """A factor remembers what it says that it does, its score is finite, and what it takes back it undoes.

    Args:
        factor: it.

    Raises:
        AssertionError: with a sentence that says what is wrong.
    """
    for word in ("name", "summary"):
        text = getattr(factor, word, None)
        that(isinstance(text, str) and text, f"A factor must say its {word}. Got {text!r}.")
    that(isinstance(factor.keeps, tuple), f"`keeps` must be a tuple of names. Got {factor.keeps!r}.")
    task, agents = gaussian_problem()
    prior = GaussianPrior(0.5)  # a precision that is not 1 shows where it is left out
    task = replace(task, prior=prior)
    with registered(FACTORS, factor) as name, working("DSVGD with the factor"):
        terms = DSVGD(factor=name, particles=4)
        factor.check(terms, prior)
    generator = stream(0, "factor")
    particles, memory, sum_of_applied = (
        prior.draw((4, task.model.dim), generator),
        Memory(),
        torch.zeros(4, task.model.dim),
    )
    that(factor.size({}) is None, "size() of an agent that remembers nothing must be None.")
    for round in range(3):
        visit = visit_of(task, agents[0], particles, memory, round, len(agents))
        _check_score(factor, visit, terms, generator)
        applied = 0.1 * torch.randn(particles.shape, generator=generator)
        with working("settle()"):
            memory = factor.settle(visit, applied, terms)
        check_memory(memory, factor.keeps)
        sum_of_applied += applied
        if factor.can_be_taken_back:
            _check_displacement(factor, memory, sum_of_applied, prior)
        particles = particles + applied
    own = factor.own({**memory, "somebody else's": particles})
    that(set(own) == set(factor.keeps), f"own() must give what `keeps` names, {list(factor.keeps)}. Got {list(own)}.")
    with working("at_random()"):
        drawn = factor.at_random(visit_of(task, agents[0], particles, {}, 0, len(agents)))
    strange = set(drawn) - set(factor.keeps)
    that(not strange, f"at_random() must give what `keeps` names. Got {sorted(strange)} as well.")
    with registered(FACTORS, factor) as name:
        check_method(DSVGD, factor=name)


def _check_score(factor: Factor, visit: Visit, terms: DSVGD, generator: torch.Generator) -> None:
    at = visit.particles + 0.1 * torch.randn(visit.particles.shape, generator=generator)
    before, downloaded = at.clone(), visit.particles.clone()
    for first in (torch.zeros_like(at), torch.ones_like(at)):
        score = first.clone()
        with working("add_cavity_score()"):
            added = factor.add_cavity_score(score, at, visit, terms)
        that(added is score, "add_cavity_score() must add to the tensor that it is given, and return it.")
        that(added.shape == at.shape and torch.isfinite(added).all(), "add_cavity_score() must be finite.")
        alone = factor.add_cavity_score(torch.zeros_like(at), at, visit, terms)
        sums = torch.allclose(added, first + alone, rtol=1e-4, atol=1e-4)
        that(sums, "add_cavity_score() must add to what is there. It overwrites it.")
    same = torch.equal(at, before) and torch.equal(visit.particles, downloaded)
    that(same, "add_cavity_score() changes the particles that it is given.")


def _check_displacement(factor: Factor, memory: Memory, expected: Tensor, prior: GaussianPrior) -> None:
    """What was applied, neither more nor less; handed over in portions it is the same again."""
    with working("displacement()"):
        moved = factor.displacement(memory, prior)
    error = float((moved - expected).abs().max())
    that(error < 1e-5, f"displacement() must be the sum of what was applied. It is {error:.3g} off.")
    size = factor.size(memory)
    that(size is not None and size > 0, f"size() must be above 0 where there is something. Got {size!r}.")
    total = 0.5 * torch.ones_like(expected)
    for taken, there in (({}, torch.zeros_like(expected)), (memory, expected)):
        with working("portion() or take_over()"):
            for _ in range(3):
                taken = factor.take_over(taken, factor.portion(total, 3, prior))
            check_memory(taken, factor.keeps)
            error = float((factor.displacement(taken, prior) - there - total).abs().max())
        that(error < 1e-5, f"Three portions of three, taken over, must add up to the whole. They are {error:.3g} off.")
