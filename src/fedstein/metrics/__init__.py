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
from fedstein.metrics.counts import PoissonMixture, log_poisson, poisson_deviance
from fedstein.metrics.forgetting import js, kl, likelihood_ratio, membership_auc, true_positives, true_probability
from fedstein.metrics.multilabel import BernoulliMixture, auroc, f1
from fedstein.metrics.predictions import Numbers, Predicted, Rows, join
from fedstein.metrics.regression import (
    CENTRAL,
    GaussianMixture,
    calibration_error,
    coverage,
    mae,
    pit_histogram,
    quantile_curve,
    rmse,
    score_numbers,
)
from fedstein.metrics.uncertainty import Prediction, mix, ood_auroc

__all__ = [
    "CENTRAL",
    "BernoulliMixture",
    "GaussianMixture",
    "Numbers",
    "PoissonMixture",
    "Predicted",
    "Prediction",
    "Reliability",
    "Rows",
    "accuracy",
    "adaptive_ece",
    "auroc",
    "brier",
    "calibration_error",
    "class_accuracy",
    "coverage",
    "ece",
    "ece_floor",
    "f1",
    "fit_scaling",
    "join",
    "js",
    "kl",
    "likelihood_ratio",
    "log_poisson",
    "mae",
    "mce",
    "membership_auc",
    "mix",
    "nll",
    "ood_auroc",
    "pit_histogram",
    "poisson_deviance",
    "quantile_curve",
    "reliability",
    "rmse",
    "scaled",
    "score_numbers",
    "true_positives",
    "true_probability",
]
