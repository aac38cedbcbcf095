"""The letter's non-IID setting on the real Fashion-MNIST: a last layer on FedAvg features, two classes an agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedstein.runs.problem import build_problem
from fedstein.runs.recorder import Recorder
from fedstein.runs.verbs import fit_config
from fedstein.settings import make_config

# The last particles: a mean over turns would help flat factors, and hide what each visit does to them.
SPLIT = ["data.partition=class-pairs", "data.examples=100", "evaluation.every=1000", "threads=1", "posterior.from=last"]


def trained(overrides):
    config = make_config(overrides=[*SPLIT, *overrides])
    problem = build_problem(config)
    return config, problem, fit_config(config, problem=problem)


@pytest.fixture(scope="module")
def features(tmp_path_factory) -> Path:
    config, _, federated = trained(
        ["method.name=fedavg", "rounds=200", "schedule.agents_per_round=10", "method.local_steps=5",
         "method.step=gradient", "method.step_size=0.1"]
    )  # fmt: skip
    with Recorder.create(tmp_path_factory.mktemp("features") / "run", config) as run:
        run.save(federated.state)
    return run.path


def last_layer(features, *overrides):
    base = [f"model.features={features}", "method.particles=40", "method.likelihood=mean", "rounds=400"]
    return trained([*base, *overrides])[1:]


def test_linear_factors_learn_all_labels_where_flat_ones_do_not(features):
    problem, linear = last_layer(features, "method.factor=linear", "method.temperature=0.3333", "prior.std=0.53")
    assert problem.dim == 1010
    assert linear.metrics["accuracy"] > 0.75
    assert min(linear.metrics["class_accuracy"]) > 0.3
    _, flat = last_layer(features, "method.step=gradient", "method.step_size=1.0")
    assert flat.metrics["accuracy"] < 0.72
