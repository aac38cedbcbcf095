"""Pure mathematics on particles: SVGD, kernels, densities, step rules. Usable alone."""

from fedstein.inference.densities import (
    GaussianPrior,
    Prior,
    UniformPrior,
    add_log_kde_score,
    log_kde,
    log_kde_score,
)
from fedstein.inference.kernels import (
    IMQ,
    KERNELS,
    RBF,
    Kernel,
    KernelMaker,
    NoKernel,
    SmoothedDensity,
    median_bandwidth,
    squared_distances,
)
from fedstein.inference.steps import STEP_RULES, AdaGrad, EmaAdaGrad, Gradient, StepRule, step_rule
from fedstein.inference.svgd import direction, svgd

__all__ = [
    "IMQ",
    "KERNELS",
    "RBF",
    "STEP_RULES",
    "AdaGrad",
    "EmaAdaGrad",
    "GaussianPrior",
    "Gradient",
    "Kernel",
    "KernelMaker",
    "NoKernel",
    "Prior",
    "SmoothedDensity",
    "StepRule",
    "UniformPrior",
    "add_log_kde_score",
    "direction",
    "log_kde",
    "log_kde_score",
    "median_bandwidth",
    "squared_distances",
    "step_rule",
    "svgd",
]
