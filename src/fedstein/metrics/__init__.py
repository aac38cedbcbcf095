"""Accuracy, calibration and uncertainty of predictions. Pure functions on tensors."""

from fedstein.metrics.calibration import Reliability, adaptive_ece, ece, mce, reliability
from fedstein.metrics.classification import accuracy, brier, class_accuracy, nll
from fedstein.metrics.uncertainty import Prediction, mix, ood_auroc

__all__ = [
    "Prediction",
    "Reliability",
    "accuracy",
    "adaptive_ece",
    "brier",
    "class_accuracy",
    "ece",
    "mce",
    "mix",
    "nll",
    "ood_auroc",
    "reliability",
]
