"""Accuracy, calibration and uncertainty of predictions. Pure functions on tensors."""

from fedstein.metrics.calibration import (
    Reliability,
    adaptive_ece,
    ece,
    ece_floor,
    fit_scaling,
    mce,
    reliability,
    scaled,
)
from fedstein.metrics.classification import accuracy, brier, class_accuracy, nll
from fedstein.metrics.forgetting import js, kl, likelihood_ratio, membership_auc, true_positives, true_probability
from fedstein.metrics.uncertainty import Prediction, mix, ood_auroc

__all__ = [
    "Prediction",
    "Reliability",
    "accuracy",
    "adaptive_ece",
    "brier",
    "class_accuracy",
    "ece",
    "ece_floor",
    "fit_scaling",
    "js",
    "kl",
    "likelihood_ratio",
    "mce",
    "membership_auc",
    "mix",
    "nll",
    "ood_auroc",
    "reliability",
    "scaled",
    "true_positives",
    "true_probability",
]
