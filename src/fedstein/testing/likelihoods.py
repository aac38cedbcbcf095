"""Does a likelihood of one's own keep what is asked of it?

>>> from fedstein.likelihoods import Poisson
>>> check_likelihood(Poisson)
"""

from __future__ import annotations

import json
import math
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vmap

from fedstein.errors import UserError
from fedstein.likelihoods import Likelihood
from fedstein.metrics import Predicted, Rows, join
from fedstein.streams import stream
from fedstein.testing.parts import that, working

__all__ = ["check_likelihood"]

_DRAWS = 20_000
_EXAMPLES = 40


def check_likelihood(kind: type[Likelihood], targets: int = 3, **settings: Any) -> None:
    """A likelihood is a normalised density of targets that fits its own draws, its gradients and its mixtures.

    Args:
        kind: the class.
        targets: how many targets (classes, of a classifier) to check it with, where its settings are made for some.
        settings: to check it with, where others than its defaults are meant.

    Raises:
        AssertionError: with a sentence that says what is wrong.
    """
    likelihood = _check_settings(kind, settings)
    with working("outputs() or targets()"):
        outputs = likelihood.outputs(targets)
        back = likelihood.targets(outputs)
    that(isinstance(outputs, int) and outputs >= 1, f"outputs() must give a number from 1. Got {outputs!r}.")
    that(back == targets, f"targets() must undo outputs(): {targets}. Got {back!r}.")
    spoken = torch.randn((5, _EXAMPLES, outputs), generator=stream(0, "outputs"))
    y = _check_targets(likelihood, spoken[0])
    _check_losses(likelihood, spoken, y)
    _check_density(likelihood, targets, y)
    _check_mixture(likelihood, spoken, y)
    _check_scores(likelihood, likelihood.predict(spoken), y)
    _check_guess(likelihood, spoken, y)
    _check_extremes(likelihood, spoken, y)


def _check_settings(kind: type[Likelihood], settings: dict[str, Any]) -> Likelihood:
    for word in ("name", "summary"):
        text = getattr(kind, word, None)
        that(isinstance(text, str) and text, f"A likelihood must say its {word}. Got {text!r}.")
    with working("Making the likelihood"):
        likelihood = kind(**settings)
    try:
        kind(**(settings | {"no_such_setting": 1}))
    except UserError:
        pass
    else:
        raise AssertionError("Settings must refuse names that they do not know. They take 'no_such_setting'.")
    that(kind.model_config.get("frozen"), "Settings must be frozen. They can be changed.")
    with working("Reading the settings back from JSON"):
        again = kind.model_validate(json.loads(likelihood.model_dump_json(exclude_none=True)))
    that(again == likelihood, f"Settings must be the same after JSON. Got {again!r} instead of {likelihood!r}.")
    return likelihood


def _check_targets(likelihood: Likelihood, spoken: Tensor) -> Tensor:
    """Targets that were drawn, and what check() makes of them and of nonsense."""
    outputs = spoken.shape[1]
    with working("draw()"):
        y, again, other = (likelihood.draw(spoken, stream(seed, "targets")) for seed in (1, 1, 2))
    that(torch.equal(y, again), "draw() must draw from its generator alone. A second call differs.")
    that(not torch.equal(y, other), "draw() must draw from its generator. Another seed gives the same.")
    before = y.clone()
    with working("check()"):
        checked = likelihood.check(y, "mine", outputs)
    that(torch.equal(y, before), "check() changes the targets that it is given.")
    labels = checked.dtype == torch.int64 and checked.dim() == 1
    table = checked.dtype == torch.float32 and checked.dim() == 2
    words = f"Got {checked.dtype} {tuple(checked.shape)}."
    that((labels or table) and len(checked) == len(y), f"check() must give int64 (n,) or float32 (n, targets). {words}")
    that(torch.equal(checked, y.to(checked.dtype)), "check() must leave targets as draw() gives them. It changes them.")
    spoilt = checked.clone().double()
    spoilt.view(-1)[0] = torch.nan
    wide = torch.zeros(len(y), outputs + 7)
    for nonsense, is_what in ((spoilt, "NaN"), (wide, f"a shape of {tuple(wide.shape)}"), (y + 1j, "complex numbers")):
        try:
            likelihood.check(nonsense, "mine", outputs)
        except UserError as error:
            that("mine" in str(error), f"check() must say whose targets it refuses. It says {str(error)!r}.")
        except Exception as error:
            raise AssertionError(f"check() must refuse {is_what} by a UserError. It raises {error!r}.") from error
        else:
            raise AssertionError(f"check() must refuse {is_what}. It takes them.")
    return checked


def _check_losses(likelihood: Likelihood, spoken: Tensor, y: Tensor) -> None:
    """A loss for each example alone, whose gradient is its own under torch.func."""
    one, before, targets = spoken[0], spoken[0].clone(), y.clone()
    with working("losses()"):
        losses = likelihood.losses(one, y)
        turned = likelihood.losses(one.flip(0), y.flip(0)).flip(0)
    that(tuple(losses.shape) == (len(y),), f"losses() must give ({len(y)},). Got {tuple(losses.shape)}.")
    that(torch.isfinite(losses).all(), "losses() must be finite.")
    that(torch.equal(one, before) and torch.equal(y, targets), "losses() changes what it is given.")
    that(torch.allclose(losses, turned, rtol=1e-4, atol=1e-5), "losses() of an example must not depend on the others.")
    with working("The gradient of losses() under torch.func"):
        slopes = vmap(grad(lambda outputs: likelihood.losses(outputs, y).sum()))(spoken)
    that(torch.isfinite(slopes).all(), "The gradient of losses() must be finite.")
    step = 1e-4 * torch.randn(one.shape, generator=stream(0, "step"), dtype=torch.float64)
    with working("losses() of float64 outputs"):
        up, down = (likelihood.losses(one.double() + side * step, y) for side in (1, -1))
    wanted, slope = (up - down) / 2, (slopes[0] * step).sum(1)
    close = torch.allclose(wanted.double(), slope, rtol=1e-2, atol=1e-3 * float(slope.abs().max()) + 1e-9)
    that(close, "The gradient must be that of losses(). It is not, by differences.")


def _check_density(likelihood: Likelihood, targets: int, y: Tensor) -> None:
    """Probabilities of all targets sum to one, and draws have them."""
    try:
        outputs = likelihood.outputs(targets if y.dim() == 1 else 1)
    except UserError:
        return  # its settings are for several targets, whose space is too large to walk through
    generator = stream(0, "density")
    for spoken in torch.randn((4, outputs), generator=generator):
        with working("draw()"):
            drawn = likelihood.draw(spoken.expand(_DRAWS, -1), generator)
        whole = drawn.dtype == torch.int64 or torch.equal(drawn, drawn.round())
        if whole:  # what is never drawn has no weight to speak of
            places = torch.arange(targets) if drawn.dim() == 1 else _whole_numbers(likelihood, drawn, outputs)
            widths = torch.ones(len(places), dtype=torch.float64)
        else:
            low, high = float(drawn.min()), float(drawn.max())
            grid = torch.linspace(2 * low - high, 2 * high - low, 20_001, dtype=torch.float64)
            places, widths = grid.float()[:, None], torch.full((len(grid),), float(grid[1] - grid[0])).double()
        losses = likelihood.losses(spoken.expand(len(places), -1), places).double()
        mass = widths * (-losses).exp()
        total = float(mass.sum())
        words = "sum" if whole else "integrate"
        that(
            abs(total - 1) < 0.01,
            f"The probabilities exp(-losses()) of all targets must {words} to 1. Got {total:.4g}.",
        )
        entropy = float((mass * losses).sum())
        own = likelihood.losses(spoken.expand(_DRAWS, -1), drawn).double()
        error = float(own.std()) / math.sqrt(_DRAWS)
        gap = abs(float(own.mean()) - entropy)
        that(
            gap < 6 * error + 0.01, "draw() must draw from the density of losses(). Their mean loss is not its entropy."
        )


def _whole_numbers(likelihood: Likelihood, drawn: Tensor, outputs: int) -> Tensor:
    """All from the least to the most that was drawn; only those that were, if others are no targets."""
    places = torch.arange(float(drawn.min()), float(drawn.max()) + 1)[:, None]
    try:
        return likelihood.check(places, "all", outputs)
    except UserError:
        values: Tensor = torch.unique(drawn)
        return values[:, None]


def _check_mixture(likelihood: Likelihood, spoken: Tensor, y: Tensor) -> None:
    with working("predict() or log_density()"):
        alone, copies, mixed, turned = (
            likelihood.predict(outputs) for outputs in (spoken[:1], spoken[:1].repeat(3, 1, 1), spoken, spoken.flip(0))
        )
        densities = [likelihood.log_density(prediction, y) for prediction in (alone, copies, mixed, turned)]
    that(isinstance(mixed, Predicted), "predict() must give what fedstein.metrics.Predicted asks for. It does not.")
    logs = torch.stack([-likelihood.losses(outputs, y) for outputs in spoken]).double()
    mean = logs.logsumexp(0) - math.log(len(logs))
    shape = tuple(densities[2].shape)
    that(shape == (len(y),), f"log_density() must give ({len(y)},). Got {shape}.")
    for values, wanted, words in (
        (densities[0], logs[0], "The mixture of one particle must be that particle: log_density() is not -losses()."),
        (densities[1], logs[0], "The mixture of equal particles must be one of them: log_density() is not -losses()."),
        (
            densities[2],
            mean,
            "predict() must be the mean of the particles' densities: log_density() is not its log.",
        ),
        (densities[3], mean, "The order of particles must not matter to predict(). It does."),
    ):
        that(torch.allclose(values.double(), wanted, rtol=1e-3, atol=1e-3), words)
    for prediction in (alone, mixed):
        for name in ("aleatoric", "epistemic", "doubt"):
            part = getattr(prediction, name)
            fits = len(part) == len(y) and bool(torch.isfinite(part).all()) and bool((part >= 0).all())
            that(fits, f"The {name} uncertainty must be finite, not below 0, and have a row for each input.")
        that(len(prediction) == len(y), f"A prediction must be as long as its inputs, {len(y)}. Got {len(prediction)}.")
    small = (alone.epistemic <= 1e-4 * (1 + alone.aleatoric)).all()
    that(small, "One particle cannot disagree with itself: epistemic must be 0. It is more.")
    that(float(mixed.epistemic.sum()) > 0, "Particles that disagree must have epistemic uncertainty. It is 0.")
    half = torch.arange(len(y) // 2)
    some = likelihood.log_density(mixed.rows(half), y[half])
    that(torch.allclose(some, densities[2][half]), "rows() must be the prediction of these inputs. It is another.")
    parts = [mixed.rows(half), mixed.rows(torch.arange(len(half), len(y)))]
    if isinstance(mixed, Rows):
        joined: Any = join(parts)  # type: ignore[type-var]
        that(torch.allclose(joined.log_density(y), densities[2]), "The parts of a prediction must join to the whole.")


def _check_scores(likelihood: Likelihood, prediction: Predicted, y: Tensor) -> None:
    with working("scores()"):
        scores = likelihood.scores(prediction, y)
        text = json.dumps(scores)
    that(isinstance(scores, dict) and json.loads(text) == scores, "scores() must give plain values, as JSON has them.")
    for name, value in scores.items():
        for one in value if isinstance(value, list) else [value]:
            that(one is None or math.isfinite(one), f"scores() must be finite. '{name}' is {one}.")
    missing = [name for name in (*likelihood.headline, "nll") if name not in scores]
    that(not missing, f"scores() must have 'nll' and what the headline names. {missing} are not there.")
    nll = -float(likelihood.log_density(prediction, y).mean())
    that(abs(scores["nll"] - nll) < 1e-4 * (1 + abs(nll)), "The 'nll' must be the mean of -log_density(). It is not.")
    that(likelihood.lower_is_better("nll") is True, "Less 'nll' is better: lower_is_better() must say so.")


def _check_guess(likelihood: Likelihood, spoken: Tensor, y: Tensor) -> None:
    with working("ignorance() or better_than_a_guess()"):
        loss = likelihood.ignorance(spoken.shape[2])
        known = likelihood.better_than_a_guess(spoken, y)
        density = likelihood.log_density(likelihood.predict(spoken), y)
    that(isinstance(loss, float) and math.isfinite(loss), f"ignorance() must give a finite number. Got {loss!r}.")
    fits = known.dtype == torch.bool and tuple(known.shape) == (len(y),)
    that(fits, f"better_than_a_guess() must give bool ({len(y)},). Got {known.dtype} {tuple(known.shape)}.")
    clear = (density + loss).abs() > 1e-4
    same = torch.equal(known[clear], (density > -loss)[clear])
    that(same, "better_than_a_guess() must compare log_density() with -ignorance(). It says otherwise.")


def _check_extremes(likelihood: Likelihood, spoken: Tensor, y: Tensor) -> None:
    """Outputs as they are when a training runs away."""
    for size in (100.0, 1e4):
        far = size * spoken.sign()
        with working(f"With outputs of {size:g}, something"):
            losses = likelihood.losses(far[0], y)
            slopes = vmap(grad(lambda outputs: likelihood.losses(outputs, y).sum()))(far)
            prediction = likelihood.predict(far)
            density = likelihood.log_density(prediction, y)
        for values, word in ((losses, "losses()"), (slopes, "the gradient"), (density, "log_density()")):
            that(not torch.isnan(values).any(), f"With outputs of {size:g}, {word} must not be NaN.")
        with working(f"With outputs of {size:g}"):
            _check_scores(likelihood, prediction, y)
