from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import bernoulli
from sklearn.metrics import f1_score, roc_auc_score

from fedstein.metrics import BernoulliMixture, Predicted, auroc, f1, join


@pytest.fixture
def labels(generator):
    log_odds = 2 * torch.randn(200, 5, 4, generator=generator, dtype=torch.float64)
    y = torch.bernoulli(log_odds[:, 0].sigmoid(), generator=generator)
    return BernoulliMixture(log_odds), y


def test_a_mixture_of_bernoullis_against_scipy(labels):
    mixture, y = labels
    p = mixture.log_odds.sigmoid().numpy()
    each = bernoulli(p)
    np.testing.assert_allclose(mixture.probabilities, p.mean(1))
    together = each.pmf(y.numpy()[:, None]).prod(2).mean(1)
    np.testing.assert_allclose(mixture.log_density(y), np.log(together), rtol=1e-9)
    np.testing.assert_allclose(mixture.aleatoric, each.entropy().reshape(p.shape).mean(1), rtol=1e-8)
    total = bernoulli(p.mean(1)).entropy()
    np.testing.assert_allclose(mixture.aleatoric + mixture.epistemic, total, rtol=1e-8)
    np.testing.assert_allclose(mixture.doubt, mixture.epistemic.sum(1))
    assert isinstance(mixture, Predicted)
    assert torch.equal(
        join([mixture.rows(y[:, 0] == v) for v in (0, 1)]).log_odds[:1], mixture.log_odds[y[:, 0] == 0][:1]
    )
    assert "4 labels" in repr(mixture)
    assert "<td>" in mixture._repr_html_()


def test_extremes_of_log_odds():
    log_odds = torch.tensor([[[1e4], [-1e4]], [[1e4], [1e4]], [[-1e30], [-1e30]]]).double()
    mixture = BernoulliMixture(log_odds)
    np.testing.assert_allclose(mixture.epistemic[:, 0], [np.log(2), 0, 0], atol=1e-12)
    np.testing.assert_allclose(mixture.aleatoric[:, 0], 0, atol=1e-12)
    assert mixture.log_density(torch.tensor([[1.0], [0.0], [1.0]])).tolist() == pytest.approx([-np.log(2), -1e4, -1e30])


def test_f1_against_scikit_learn(labels):
    mixture, y = labels
    micro, each = f1(mixture.label, y)
    assert micro == pytest.approx(f1_score(y, mixture.label, average="micro"))
    assert each == pytest.approx(f1_score(y, mixture.label, average=None))
    empty = torch.zeros(3, 2)
    assert f1(empty.bool(), empty) == (0.0, [0.0, 0.0])


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(-5, 5), st.booleans()), min_size=1, max_size=40))
def test_auroc_against_scikit_learn_with_ties(pairs):
    scores, y = (torch.tensor(column, dtype=torch.float64) for column in zip(*pairs, strict=True))
    if len(set(y.tolist())) < 2:
        assert auroc(scores, y) is None
    else:
        assert auroc(scores, y) == pytest.approx(roc_auc_score(y, scores))
