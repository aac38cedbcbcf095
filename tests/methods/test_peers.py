"""The letter's peers: QLSD's thinning, and an ensemble that is what it says."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedstein.data import Holdings, load_digits
from fedstein.methods import FedAvg
from fedstein.methods.qlsd import thin
from fedstein.models import DenseStack, Task
from fedstein.protocol import Schedule
from fedstein.runs.judge import Judge
from fedstein.runs.problem import Problem
from fedstein.runs.training import fit


@given(
    values=st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=30),
    keep=st.floats(0.01, 0.999),
    seed=st.integers(0, 1000),
)
@settings(max_examples=100, deadline=None)
def test_thinning_keeps_signs_and_never_shrinks(values, keep, seed):
    row = torch.tensor([values])
    thinned = thin(row, keep, torch.Generator().manual_seed(seed))
    alive = thinned != 0
    assert torch.isfinite(thinned).all()
    assert (thinned[alive].sign() == row[alive].sign()).all()
    assert (thinned[alive].abs() >= row[alive].abs() * (1 - 1e-5)).all()


def test_thinning_is_unbiased_and_leaves_as_many_as_asked():
    generator = torch.Generator().manual_seed(0)
    row = torch.randn(1, 200, generator=generator) ** 3
    draws = torch.cat([thin(row, 0.2, generator) for _ in range(4000)])
    error = (draws.mean(0) - row[0]) / draws.std(0).clamp_min(1e-9) * len(draws) ** 0.5
    assert error[draws.std(0) > 1e-6].abs().max() < 5  # standard errors, of 200 entries
    assert abs((draws != 0).float().mean().item() - 0.2) < 0.003


def test_thinning_does_not_hide_what_is_not_finite():
    generator = torch.Generator().manual_seed(0)
    assert not torch.isfinite(thin(torch.tensor([[float("nan"), 1.0, 2.0, 3.0]]), 0.5, generator)).all()
    huge = thin(torch.tensor([[1e38, 3e38, 3e38, 1.0]]), 0.75, generator)
    assert huge.count_nonzero() >= 2


def test_thinning_has_less_variance_than_thinning_at_random():
    generator = torch.Generator().manual_seed(0)
    row = torch.randn(1, 200, generator=generator) ** 3
    draws = torch.cat([thin(row, 0.2, generator) for _ in range(2000)])
    at_random = row * (torch.rand(2000, 200, generator=generator) < 0.2) / 0.2
    assert draws.var(0).sum() < 0.3 * at_random.var(0).sum()


def test_members_of_an_ensemble_know_nothing_of_each_other():
    digits = load_digits()
    agents = [digits.train.take(torch.arange(k * 40, (k + 1) * 40)) for k in range(3)]
    problem = Problem(Task(DenseStack([64, 16, 10])), Holdings(agents), Judge(digits.test))
    task, holdings = problem.task, problem.holdings

    class Fixed(FedAvg):
        """Starts where it is told."""

        def start(self, *_):
            return first[: self.particles].clone()

    def trained(members):
        method = Fixed(particles=members, step="gradient", step_size=0.1)
        terms = {"rounds_to_do": 4, "schedule": Schedule(), "seed": 0, "evaluate_every": 4}
        return fit(task, holdings, problem.evaluate, method, **terms).particles

    first = task.model.draw(3, torch.Generator().manual_seed(1))
    together = trained(3)
    torch.testing.assert_close(together[:1], trained(1), rtol=1e-4, atol=1e-6)
