"""Every part that comes with fedstein keeps what its seam asks; and a part that does not is noticed."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
import torch
from pydantic import ConfigDict

from fedstein import seams, testing
from fedstein.data import PARTITIONERS, SOURCES, DataConfig, Dataset, Examples, Source, load_digits
from fedstein.engines import ENGINES, Local
from fedstein.inference import KERNELS, STEP_RULES
from fedstein.methods import FACTORS, METHODS, FedAvg
from fedstein.methods.factors import Kde, Linear
from fedstein.posterior import POSTERIORS
from fedstein.protocol import SCHEDULERS
from fedstein.testing import (
    check_data_source,
    check_factor,
    check_kernel,
    check_method,
    check_partitioner,
    check_posterior,
    check_scheduler,
    check_step_rule,
    check_tracker,
)
from fedstein.trackers import TRACKERS
from fedstein.trackers.tensorboard import TensorBoard


def refused(words, check, *arguments):
    with pytest.raises(AssertionError, match=words):
        check(*arguments)


def test_there_is_a_check_for_every_seam():
    assert {f"check_{seam}" for seam in seams()} == set(testing.__all__)
    assert all(callable(getattr(testing, name)) for name in testing.__all__)


# Methods


@pytest.mark.parametrize("name", METHODS)
def test_methods(name):
    check_method(METHODS[name])


class Thawed(FedAvg):
    model_config = ConfigDict(frozen=False)


class Lax(FedAvg):
    model_config = ConfigDict(extra="ignore")


class Unreadable(FedAvg):
    widths: tuple[int, ...] = (1, 2)  # a list in JSON, which strict settings do not take for a tuple


class Nameless(FedAvg):
    summary: ClassVar[str] = ""


class Careless(FedAvg):
    """Draws from everybody's random numbers."""

    def visit(self, visit):
        return super().visit(visit) + torch.randn(visit.particles.shape)


class CarelessStart(FedAvg):
    def start(self, task, generator):
        return torch.randn(self.particles, task.model.dim)


class InPlace(FedAvg):
    def visit(self, visit):
        return visit.particles.add_(1.0)


class Forgetful(FedAvg):
    """Changes what it remembers before it knows whether its upload was applied."""

    remembers: ClassVar[bool] = True

    def visit(self, visit):
        if visit.memory:
            visit.memory["count"].add_(1)
        return super().visit(visit)

    def settle(self, visit, applied):
        return {"count": visit.memory.get("count", torch.zeros(1)).clone()}


class Exploding(FedAvg):
    def visit(self, visit):
        return super().visit(visit) / 0.0


class Shrinking(FedAvg):
    def visit(self, visit):
        return super().visit(visit)[:1]


class Double(FedAvg):
    def visit(self, visit):
        return super().visit(visit).double()


class Keeping(FedAvg):
    """Keeps what a test says."""

    remembers: ClassVar[bool] = True

    def settle(self, visit, applied):
        return self.kept


class Secretive(FedAvg):
    """Keeps something beside the tensors, which no checkpoint has."""

    remembers: ClassVar[bool] = True

    def visit(self, visit):
        return super().visit(visit) + getattr(visit.memory.get("seen"), "age", 0)

    def settle(self, visit, applied):
        seen = torch.zeros(1)
        seen.age = getattr(visit.memory.get("seen"), "age", 0) + 1
        return {"seen": seen}


class Denying(Secretive):
    remembers: ClassVar[bool] = False


class Statistical(FedAvg):
    def visit(self, visit):
        spread = visit.data.x.std(0).mean()  # of one example: not a number
        return super().visit(visit) + 0 * spread


class Idle(FedAvg):
    def visit(self, visit):
        return visit.particles.clone()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Thawed, "must be frozen"),
        (Lax, "must refuse names"),
        (Unreadable, "back from JSON raises ValidationError"),
        (Nameless, "must say its summary"),
        (Careless, "same seed must give the same bits"),
        (CarelessStart, "start.. must draw from its generator alone"),
        (InPlace, "changes visit.particles"),
        (Forgetful, "changes visit.memory"),
        (Exploding, "visit.. gives particles that are not finite"),
        (Shrinking, "visit.. must keep the shape"),
        (Double, "visit.. must keep the type"),
        (Secretive, "stopped and gone on with"),
        (Denying, "must say so: remembers"),
        (Statistical, "one example"),
        (Idle, "must move the particles"),
    ],
)
def test_a_method_that_is_none_is_noticed(kind, words):
    refused(words, check_method, kind)


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        ([torch.zeros(1)], "must give a dict"),
        ({"count": torch.zeros(1, dtype=torch.int64)}, "'count' is none"),
        ({"far": torch.tensor([torch.inf])}, "'far' is none"),
        ({"residual": torch.zeros(1)}, "a name of its own. Got 'residual'"),
        ({"escrow": torch.zeros(1)}, "a name of its own. Got 'escrow'"),
    ],
)
def test_a_memory_that_is_none_is_noticed(kept, words):
    refused(words, check_method, type("Keeping", (Keeping,), {"kept": property(lambda self: kept)}))


# Factors


@pytest.mark.parametrize("name", FACTORS)
def test_factors(name):
    check_factor(FACTORS[name])
    assert not [name for name in FACTORS if name.startswith("checked")]


class Empty(Linear):
    def settle(self, visit, applied, terms):
        return {}


class Overwriting(Linear):
    def add_cavity_score(self, to, at, visit, terms):
        return super().add_cavity_score(to.zero_(), at, visit, terms)


class Elsewhere(Linear):
    def add_cavity_score(self, to, at, visit, terms):
        return super().add_cavity_score(to.clone(), at, visit, terms)


class NotFinite(Kde):
    def add_cavity_score(self, to, at, visit, terms):
        return super().add_cavity_score(to, at, visit, terms).div_(0.0)


class Imprecise(Linear):
    """Forgets the prior's precision."""

    def displacement(self, memory, prior):
        return memory["site"]


class Generous(Linear):
    def portion(self, total, parts, prior):
        return super().portion(total, 1, prior)


class Replacing(Linear):
    def take_over(self, memory, portion):
        return {"site": portion}


class Unmade(Linear):
    fitting = {"kernal": "none"}  # noqa: RUF012


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (Empty(), "must keep what `keeps` names"),
        (Overwriting(), "must add to what is there"),
        (Elsewhere(), "must add to the tensor that it is given"),
        (NotFinite(), "add_cavity_score.. must be finite"),
        (Imprecise(), "displacement.. must be the sum of what was applied"),
        (Generous(), "must add up to the whole"),
        (Replacing(), "must add up to the whole"),
        (Unmade(), "unknown 'kernal'"),
    ],
)
def test_a_factor_that_is_none_is_noticed(factor, words):
    refused(words, check_factor, factor)
    assert not [name for name in FACTORS if name.startswith("checked")]


# Kernels and step rules


@pytest.mark.parametrize("name", KERNELS)
def test_kernels(name):
    check_kernel(KERNELS[name])


def kernel(change):
    """A kernel that is not quite rbf."""
    return lambda bandwidth, width: lambda particles: change(particles, *KERNELS["rbf"](bandwidth, width)(particles))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, values, slopes: (values[:1], slopes), "values must be"),
        (lambda x, values, slopes: (values, values[:1]), "slopes must be"),
        (lambda x, values, slopes: (values, "steep"), "a tensor or a float"),
        (lambda x, values, slopes: (values.tril(), slopes), "symmetric"),
        (lambda x, values, slopes: (-values, slopes), "positive on the diagonal"),
        (lambda x, values, slopes: (values / x.std(), slopes), "values must be finite"),
        (lambda x, values, slopes: (values, slopes * values / x.std()), "slopes must be finite"),
        (lambda x, values, slopes: (values + torch.rand(()), slopes), "differs between two calls"),
        (lambda x, values, slopes: (x.zero_() @ x.T + values, slopes), "changes the particles"),
        (lambda x, values, slopes: 1 / 0, "raises ZeroDivisionError"),
    ],
)
def test_a_kernel_that_is_none_is_noticed(change, words):
    refused(words, check_kernel, kernel(change))


@pytest.mark.parametrize("name", STEP_RULES)
def test_step_rules(name):
    check_step_rule(STEP_RULES[name])


class Rule:
    """Plain steps, but for what a test changes."""

    def __init__(self, size, move):
        self.size, self.move, self.memory = size, move, []

    def start(self):
        return partial(self.move, self)


def not_in_place(rule, particles, phi):
    return particles + rule.size * phi


def backwards(rule, particles, phi):
    particles.sub_(phi, alpha=rule.size)


def of_one_size(rule, particles, phi):
    particles.add_(phi, alpha=0.01)


def restless(rule, particles, phi):
    particles.add_(phi + 1e-3, alpha=rule.size)


def remembering(rule, particles, phi):
    rule.memory.append(phi.square())
    particles.addcdiv_(phi, sum(rule.memory).sqrt() + 1e-6, value=rule.size)


def unsafe(rule, particles, phi):
    particles.addcdiv_(phi, phi.abs(), value=rule.size)


@pytest.mark.parametrize(
    ("move", "words"),
    [
        (not_in_place, "must move the particles in place"),
        (backwards, "goes against it"),
        (of_one_size, "size must matter"),
        (restless, "direction of zeros"),
        (remembering, "remembers from one start to the next"),
        (unsafe, "not finite"),
    ],
)
def test_a_step_rule_that_is_none_is_noticed(move, words):
    refused(words, check_step_rule, partial(Rule, move=move))


# Posteriors


@pytest.mark.parametrize("name", POSTERIORS)
def test_posteriors(name):
    check_posterior(POSTERIORS[name])


@pytest.mark.parametrize(
    ("words", "maker"),
    [
        ("Members must be", lambda last, means, settings, generator: means),
        ("must be finite", lambda last, means, settings, generator: means[0] / (means[0] - means[0])),
        ("changes the window", lambda last, means, settings, generator: means.mul_(2.0)[0]),
        ("changes the particles", lambda last, means, settings, generator: last.add_(1.0)),
        ("differs between", lambda last, means, settings, generator: last + torch.rand(1)),
        ("must be there too", lambda last, means, settings, generator: 2 * last),
        ("must be torch.float32", lambda last, means, settings, generator: last.double()),
        ("raises KeyError", lambda last, means, settings, generator: {}["mean"]),
    ],
)
def test_posteriors_that_are_none(words, maker):
    refused(words, check_posterior, maker)


# Schedulers


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers(name):
    check_scheduler(SCHEDULERS[name])


def changing(round, agents, count, seed):
    return torch.randperm(agents)[:count].tolist()


def never_the_last(round, agents, count, seed):
    return [(round * count + i) % max(count, agents - 1) for i in range(count)]


def twice(round, agents, count, seed):
    return [round % agents] * count


def outside(round, agents, count, seed):
    return [(round + i) % (agents + 1) for i in range(count)]


def tensors(round, agents, count, seed):
    return list(torch.tensor([(round * count + i) % agents for i in range(count)]))


def not_everybody(round, agents, count, seed):
    return [(round * count + i) % agents for i in range(min(count, max(1, agents - 1)))]


@pytest.mark.parametrize(
    ("scheduler", "words"),
    [
        (changing, "pure function of the round"),
        (never_the_last, r"never picks \[6\]"),
        (twice, "3 different agents"),
        (outside, "in 0..0. Got"),
        (tensors, "different agents in"),
        (not_everybody, "7 different agents"),
    ],
)
def test_a_scheduler_that_is_none_is_noticed(scheduler, words):
    refused(words, check_scheduler, scheduler)


# Partitioners and data sources


@pytest.mark.parametrize("name", [name for name in PARTITIONERS if name != "indices"])
@pytest.mark.parametrize("examples", [None, 10])
def test_partitioners(name, examples):
    check_partitioner(PARTITIONERS[name], DataConfig(name="digits", agents=5, examples=examples))
    check_partitioner(PARTITIONERS[name])


def test_the_partitioner_of_a_file(tmp_path):
    (tmp_path / "who.json").write_text(json.dumps([[0, 2], [1, 5, 7], [299]]))
    settings = {"agents": 3, "partition": "indices", "indices": str(tmp_path / "who.json")}
    check_partitioner(PARTITIONERS["indices"], DataConfig(name="digits", **settings))


def dealt(labels, data, generator):
    order = torch.randperm(len(labels), generator=generator)
    return list(order.chunk(data.agents))


@pytest.mark.parametrize(
    ("partitioner", "words"),
    [
        (lambda y, data, generator: dealt(y, data, None), "draw from the generator alone"),
        (lambda y, data, generator: dealt(y, data, generator)[1:], "must give 5 parts"),
        (lambda y, data, generator: [dealt(y, data, generator)[0]] * 5, "to two agents"),
        (lambda y, data, generator: [part.repeat(2) for part in dealt(y, data, generator)], "twice to one"),
        (lambda y, data, generator: [*dealt(y, data, generator)[1:], torch.arange(0)], "agent 4 are none"),
        (lambda y, data, generator: [part + 1 for part in dealt(y, data, generator)], "must be in 0..299"),
        (lambda y, data, generator: [part.tolist() for part in dealt(y, data, generator)], "tensor .n,. of int64"),
        (lambda y, data, generator: [part.int() for part in dealt(y, data, generator)], "tensor .n,. of int64"),
        (lambda y, data, generator: dealt(y.zero_(), data, generator), "changes the labels"),
    ],
)
def test_a_partitioner_that_is_none_is_noticed(partitioner, words):
    check_partitioner(dealt)
    refused(words, check_partitioner, partitioner)


@pytest.mark.parametrize("name", [name for name in SOURCES if SOURCES[name].ready])
def test_data_sources(name):
    check_data_source(SOURCES[name])


def test_data_sources_of_ones_own(tmp_path):
    generator = np.random.default_rng(0)
    for name, count in (("test", 6), ("agent-0", 4), ("agent-1", 5)):
        np.savez(tmp_path / f"{name}.npz", x=generator.normal(size=(count, 3)), y=np.arange(count) % 2)
    check_data_source(SOURCES["folder"], tmp_path)
    refused("needs the path", check_data_source, SOURCES["folder"])
    parts = {f"{a}_{b}": generator.normal(size=(4, 3)) if a == "x" else np.arange(4) % 2 for a in "xy"
             for b in ("train", "test")}  # fmt: skip
    np.savez(tmp_path / "mine.npz", **parts)
    check_data_source(SOURCES["npz"], tmp_path / "mine.npz")
    refused("raises UserError: The 'data.path' must name", check_data_source, SOURCES["npz"])


def source(change=lambda dataset: dataset, about="Digits.", **more):
    return Source(about, lambda path: change(load_digits()), **more)


def with_train(change):
    return lambda dataset: replace(dataset, train=change(dataset.train))


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (source(about=""), "what it is about"),
        (source(about="Two\nlines."), "in a line"),
        (source(lambda dataset: dataset.train), "must give a Dataset"),
        (source(with_train(lambda data: Examples(data.x.half(), data.y))), "train: x must be float32"),
        (source(with_train(lambda data: Examples(data.x.log(), data.y))), "train: x must be finite"),
        (source(with_train(lambda data: Examples(data.x, data.y.int()))), "train: y must be int64"),
        (source(with_train(lambda data: Examples(data.x, data.y + 1))), "train: y must be in 0..9. Got 1..10"),
        (source(with_train(lambda data: Examples(data.x.flatten(1), data.y))), "shaped like that of test"),
        (source(with_train(lambda data: Examples(data.x, data.y[1:]))), "as many x as y"),
        (source(with_train(lambda data: Examples(data.x + torch.rand(()), data.y))), "must be the same each time"),
        (source(lambda dataset: Dataset("a", dataset.train.none(), dataset.test, 10)), "must have examples"),
        (source(class_names=("a", "b")), "one for each of 10 classes"),
        (source(held=lambda path, agents, remote: None), "not both"),
    ],
)
def test_a_data_source_that_is_none_is_noticed(part, words):
    refused(words, check_data_source, part)


# Trackers


@pytest.mark.filterwarnings("ignore")  # of TensorBoard's own
def test_tensorboard(tmp_path):
    check_tracker(TRACKERS["tensorboard"], tmp_path)
    assert list((tmp_path / "tensorboard").glob("events*"))


class Once(TensorBoard):
    def __init__(self, run, settings, round):
        (run / "board").mkdir()
        super().__init__(run, settings, round)


class Demanding(TensorBoard):
    def after_round(self, state, told):
        super().after_round(state, told)
        self.last = told.metrics["accuracy"]


class Meddling(TensorBoard):
    def after_round(self, state, told):
        if told.metrics is not None:
            told.metrics.pop("nll")


class Moving(TensorBoard):
    def after_round(self, state, told):
        state.particles.zero_()


class Swallowing(TensorBoard):
    def __exit__(self, *error):
        super().__exit__(*error)
        return True


class Nothing(TensorBoard):
    def __enter__(self):
        pass


@pytest.mark.filterwarnings("ignore")  # of TensorBoard's own
@pytest.mark.parametrize(
    ("maker", "words"),
    [
        (Once, "Opening the tracker at round 2 raises FileExistsError"),
        (Demanding, "without metrics raises TypeError"),
        (Meddling, "changes the metrics"),
        (Moving, "changes the particles"),
        (Swallowing, "must not swallow errors"),
        (Nothing, "must give the tracker itself"),
    ],
)
def test_a_tracker_that_is_none_is_noticed(maker, words, tmp_path):
    refused(words, check_tracker, maker, tmp_path)


@pytest.mark.filterwarnings(
    "ignore::FutureWarning:ray", "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_engines_of_our_own_pass():
    testing.check_engine(ENGINES["local"])
    testing.check_engine(ENGINES["ray"], "local", 2)


class _Forgetful(Local):
    """Loses what agents keep."""

    def remembered(self):
        super().remembered()
        return {}


class _Rounding(Local):
    """Changes the particles on the way down."""

    def send(self, orders):
        super().send([replace(order, particles=order.particles.half().float()) for order in orders])


@pytest.mark.parametrize(
    ("kind", "said"),
    [(_Forgetful, "other particles|another memory|remembers other agents"), (_Rounding, "other particles")],
)
def test_an_engine_that_changes_what_it_carries_is_caught(kind, said):
    @contextmanager
    def maker(crew, address, workers):
        yield kind(crew.task, crew.holdings)

    with pytest.raises(AssertionError, match=said):
        testing.check_engine(maker)
