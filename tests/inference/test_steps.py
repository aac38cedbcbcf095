from __future__ import annotations

import pytest
import torch

from fedstein.inference import step_rule


def moved(name, size, directions):
    rule, x = step_rule(name, size), torch.zeros(2, 2)
    move = rule.start()
    for phi in directions:
        move(x, phi.clone())
    return x


def test_rules_follow_their_formulas(generator):
    a, b = torch.randn(2, 2, generator=generator), torch.randn(2, 2, generator=generator)
    torch.testing.assert_close(moved("gradient", 0.1, [a, b]), 0.1 * (a + b))
    first = 0.1 * a / (1e-6 + a.abs())
    ema = first + 0.1 * b / (1e-6 + (0.9 * a**2 + 0.1 * b**2).sqrt())
    torch.testing.assert_close(moved("ema-adagrad", 0.1, [a, b]), ema)
    plain = first + 0.1 * b / (1e-6 + (a**2 + b**2).sqrt())
    torch.testing.assert_close(moved("adagrad", 0.1, [a, b]), plain)


@pytest.mark.parametrize("name", ["gradient", "ema-adagrad", "adagrad"])
def test_memory_is_empty_at_each_start(name):
    rule, x = step_rule(name, 0.1), torch.zeros(1, 1)
    for _ in range(2):
        before = x.clone()
        rule.start()(x, torch.ones(1, 1))
        torch.testing.assert_close(x - before, torch.full((1, 1), 0.1), rtol=1e-4, atol=0.0)
