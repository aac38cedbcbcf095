from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import entropy
from sklearn.calibration import calibration_curve
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, recall_score, roc_auc_score
from torchmetrics.classification import MulticlassCalibrationError

from fedstein.metrics import (
    accuracy,
    adaptive_ece,
    brier,
    class_accuracy,
    ece,
    ece_floor,
    mce,
    mix,
    nll,
    ood_auroc,
    reliability,
)


@pytest.fixture
def predictions(generator):
    probabilities = (torch.randn(3000, 10, generator=generator) * 2).softmax(1)
    labels = torch.multinomial(probabilities**0.7, 1, generator=generator)[:, 0]
    return probabilities, labels


def test_classification_against_scikit_learn(predictions):
    probabilities, labels = predictions
    p, y = probabilities.numpy().astype(float), labels.numpy()
    p /= p.sum(1, keepdims=True)
    assert accuracy(*predictions) == accuracy_score(y, p.argmax(1))
    assert nll(*predictions) == pytest.approx(log_loss(y, p), rel=1e-5)
    assert brier(*predictions) == pytest.approx(brier_score_loss(y, p, scale_by_half=False), rel=1e-5)
    assert class_accuracy(*predictions) == pytest.approx(recall_score(y, p.argmax(1), average=None))


@pytest.mark.parametrize("bins", [1, 10, 15, 40])
def test_calibration_against_torchmetrics(predictions, bins):
    for norm, ours in (("l1", ece), ("max", mce)):
        theirs = MulticlassCalibrationError(10, n_bins=bins, norm=norm)(*predictions)
        assert ours(*predictions, bins=bins) == pytest.approx(float(theirs), abs=1e-5)


def test_reliability_against_scikit_learn(predictions):
    confidence, predicted = predictions[0].double().max(1)
    right = (predicted == predictions[1]).numpy()
    truth, mean = calibration_curve(right, confidence.numpy(), n_bins=15)
    curve = reliability(*predictions, bins=15)
    assert curve.accuracy == pytest.approx(list(truth))
    assert curve.confidence == pytest.approx(list(mean))
    truth, mean = calibration_curve(right, confidence.numpy(), n_bins=15, strategy="quantile")
    curve = reliability(*predictions, bins=15, adaptive=True)
    assert curve.accuracy == pytest.approx(list(truth), abs=0.02)
    weighted = float(np.mean(np.abs(truth - mean)))  # equal counts
    assert adaptive_ece(*predictions) == pytest.approx(weighted, abs=2e-3)


def test_the_floor_of_the_ece_is_that_of_a_normal_count(predictions, generator):
    """A bin's number of right answers is nearly normal: its mean distance from what is expected is known."""
    confidence = predictions[0].double().max(1).values
    variance = torch.zeros(15, dtype=torch.float64)
    variance.index_add_(0, (confidence * 15).ceil().long() - 1, confidence * (1 - confidence))
    expected = float((2 / np.pi * variance).sqrt().sum() / len(confidence))
    assert ece_floor(predictions[0], generator, draws=400) == pytest.approx(expected, rel=0.03)
    assert ece(*predictions) > 3 * expected  # these labels are of other probabilities


def test_an_edge_belongs_to_the_bin_below():
    """0.5 in 2 bins: (0, 0.5] holds it. torchmetrics 1.9 puts it above."""
    probabilities = torch.tensor([[0.5, 0.3, 0.2], [0.9, 0.05, 0.05]])
    curve = reliability(probabilities, torch.tensor([1, 0]), bins=2)
    assert curve.counts == [1, 1]
    assert curve.edges == [(0.0, 0.5), (0.5, 1.0)]
    assert ece(probabilities, torch.tensor([1, 0]), bins=2) == pytest.approx((0.5 + 0.1) / 2)


def test_extremes():
    sure = torch.eye(3)
    assert ece(sure, torch.arange(3)) == 0
    assert nll(sure, torch.tensor([1, 2, 0])) == pytest.approx(-np.log(1e-38), rel=1e-3)
    assert class_accuracy(sure[:2], torch.tensor([0, 0])) == [0.5, None, None]


def test_uncertainty_splits_the_entropy(generator):
    logs = (torch.randn(5, 40, 10, generator=generator) * 3).log_softmax(2)
    mixed = mix(logs)
    p = logs.double().exp().numpy()
    np.testing.assert_allclose(mixed.probabilities, p.mean(0), rtol=1e-5)
    np.testing.assert_allclose(mixed.entropy, entropy(p.mean(0), axis=1), rtol=1e-4)
    np.testing.assert_allclose(mixed.aleatoric, entropy(p, axis=2).mean(0), rtol=1e-4)
    kl = np.mean([entropy(p[n], p.mean(0), axis=1) for n in range(5)], axis=0)  # the mutual information
    np.testing.assert_allclose(mixed.epistemic, kl, rtol=1e-3, atol=1e-6)
    assert mix(logs[:1]).epistemic.abs().max() < 1e-5
    certain = mix(torch.tensor([[[0.0, -torch.inf]], [[-torch.inf, 0.0]]]))
    assert certain.epistemic.item() == pytest.approx(np.log(2))


def test_ood_auroc(generator):
    inside, outside = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.25, 0.5])
    assert ood_auroc(inside, outside) == pytest.approx(5 / 6)
    inside = (torch.randn(300, generator=generator) * 3).round()  # with many ties
    outside = (torch.randn(70, generator=generator) * 3 + 1).round()
    truth = torch.cat([torch.zeros(300), torch.ones(70)])
    assert ood_auroc(inside, outside) == pytest.approx(roc_auc_score(truth, torch.cat([inside, outside])), abs=1e-12)
