"""Does a part of one's own keep what its seam asks of it? One check for each seam, for tests of any package.

Methods, factors, data and the parts of an upload have modules of their own beside this one.

>>> from fedstein.inference import KERNELS
>>> check_kernel(KERNELS["rbf"])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from fedstein.coding import Upload
from fedstein.inference import KernelMaker, StepRule, direction
from fedstein.posterior import Maker, Posterior
from fedstein.protocol import Scheduler, State, Told, Totals
from fedstein.streams import stream
from fedstein.trackers import TrackerMaker

__all__ = [
    "check_kernel",
    "check_posterior",
    "check_scheduler",
    "check_step_rule",
    "check_tracker",
    "that",
    "working",
]


def that(holds: object, sentence: str) -> None:
    """An `assert` that `python -O` does not take away."""
    if not holds:
        raise AssertionError(sentence)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Whatever a part raises becomes an AssertionError that says where."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"{what} raises {type(error).__name__}: {error}") from error


def check_kernel(maker: KernelMaker) -> None:
    """A kernel gives symmetric, finite values for all pairs of particles, and SVGD a finite direction.

    Args:
        maker: makes it, from `method.kernel_bandwidth` and `method.kde_bandwidth`.

    Raises:
        AssertionError: with a sentence that says what is wrong.
    """
    generator = stream(0, "kernel")
    spread = torch.randn((6, 3), generator=generator)
    for particles in (
        spread,
        spread[:2],
        100.0 * spread,
        torch.ones(4, 3),
        torch.randn((5, 2000), generator=generator),
    ):
        for bandwidth in (None, 2.0):
            shape, before = (len(particles), len(particles)), particles.clone()
            with working("The kernel"):
                kernel = maker(bandwidth, 0.55)
                values, slopes = kernel(particles)
                again = maker(bandwidth, 0.55)(particles)[0]
            that(torch.equal(particles, before), "The kernel changes the particles that it is given.")
            that(tuple(values.shape) == shape, f"The values must be {shape}. Got {tuple(values.shape)}.")
            that(torch.isfinite(values).all(), "The values must be finite, also where particles coincide.")
            torch_like = isinstance(slopes, Tensor)
            that(torch_like or isinstance(slopes, float), f"The slopes must be a tensor or a float. Got {slopes!r}.")
            rates = slopes if isinstance(slopes, Tensor) else torch.tensor(slopes)
            size = tuple(rates.shape)
            that(size == shape or not torch_like, f"The slopes must be {shape}, or a float. Got {size}.")
            that(torch.isfinite(rates).all(), "The slopes must be finite, also where particles coincide.")
            that(
                torch.allclose(values, values.T, rtol=1e-4, atol=1e-5),
                "The values must be symmetric: k(x, y) = k(y, x).",
            )
            that((values.diagonal() > 0).all(), "The values must be positive on the diagonal: k(x, x) > 0.")
            that(torch.equal(values, again), "The kernel differs between two calls with equal particles.")
            with working("SVGD with the kernel"):
                phi = direction(particles, torch.ones_like(particles), kernel)
            that(phi.shape == particles.shape and torch.isfinite(phi).all(), "SVGD's direction must be finite.")


def check_posterior(maker: Maker) -> None:
    """A posterior makes finite members of any window, the same for equal arguments, and changes nothing it is given.

    Args:
        maker: makes them.

    Raises:
        AssertionError: with a sentence that says what is wrong.
    """
    for turns, particles, dim in ((1, 1, 4), (1, 3, 4), (7, 1, 30), (5, 4, 2)):
        for spread in (1.0, 0.0):
            means = torch.randn((turns, particles, dim), generator=stream(0, "posterior"))
            means = 2.0 + spread * means
            last, before = means[-1].clone(), means.clone()
            with working("The posterior"):
                members, again = (maker(last, means, Posterior(), stream(0, "posterior")) for _ in range(2))
            that(torch.equal(means, before), "The posterior changes the window that it is given.")
            that(torch.equal(last, before[-1]), "The posterior changes the particles that it is given.")
            shape = tuple(members.shape)
            that(len(shape) == 2 and shape[0] > 0 and shape[1] == dim, f"Members must be (M, {dim}). Got {shape}.")
            that(members.dtype == means.dtype, f"Members must be {means.dtype}. Got {members.dtype}.")
            that(torch.isfinite(members).all(), "Members must be finite, also where all turn means coincide.")
            that(torch.equal(members, again), "The posterior differs between two calls with equal arguments.")
            that(
                spread > 0 or torch.allclose(members, torch.full_like(members, 2.0)),
                "Where all turn means coincide, the members must be there too.",
            )


def check_step_rule(maker: Callable[[float], StepRule]) -> None:
    """A step rule moves particles in place along the direction, as its size says, and forgets at each start.

    Args:
        maker: makes it, from `method.step_size`.

    Raises:
        AssertionError: with a sentence that says what is wrong.
    """
    generator = stream(0, "step rule")
    first, phi = (torch.randn((4, 5), generator=generator) for _ in range(2))

    def moved(rule: StepRule, *directions: Tensor) -> Tensor:
        particles = first.clone()
        with working("The step rule"):
            move = rule.start()
            for one in directions:
                move(particles, one.clone())
        that(torch.isfinite(particles).all(), "The step rule makes particles that are not finite.")
        return particles - first

    small, large = maker(0.01), maker(0.1)
    step = moved(small, phi)
    that(not torch.equal(step, torch.zeros_like(step)), "The step rule must move the particles in place. They did not.")
    that((step * phi).sum() > 0, "The first step must go along the direction. It goes against it.")
    that(moved(large, phi).norm() > 2 * step.norm(), "The size must matter: a tenfold one must go much further.")
    that(
        moved(small, torch.zeros_like(phi)).abs().max() == 0,
        "A direction of zeros must leave particles where they are.",
    )
    moved(small, *[1e3 * phi] * 3)
    that(torch.equal(moved(small, phi), step), "The step rule remembers from one start to the next: it must forget.")
    one_by_one = torch.cat([moved(small, phi, 2 * phi), moved(small, phi, 2 * phi)])
    that(torch.equal(*one_by_one.chunk(2)), "The step rule differs between two visits with equal directions.")


def check_scheduler(scheduler: Scheduler) -> None:
    """A scheduler is a pure function of the round, picks so many different agents, and leaves nobody out.

    Args:
        scheduler: the function.

    Raises:
        AssertionError: with a sentence that says what is wrong.
    """
    for agents, count in ((1, 1), (7, 1), (7, 3), (7, 7), (40, 2)):
        for seed in (0, 5):
            most = 40 * -(-agents // count)
            with working(f"The scheduler, for {count} of {agents} agents,"):
                picked = [scheduler(round, agents, count, seed) for round in range(most)]
                again = [scheduler(round, agents, count, seed) for round in reversed(range(most))][::-1]
                scheduler(10**9, agents, count, seed)
            words = f"The scheduler must pick {count} different agents in 0..{agents - 1}. Got "
            for one in picked:
                that(isinstance(one, list) and all(type(agent) is int for agent in one), f"{words}{one!r}.")
                that(len(one) == count == len(set(one)) and all(0 <= a < agents for a in one), f"{words}{one}.")
            that(picked == again, "The scheduler must be a pure function of the round. A second call differs.")
            never = set(range(agents)) - {agent for one in picked for agent in one}
            that(not never, f"The scheduler must leave nobody out. In {most} rounds it never picks {sorted(never)}.")


def check_tracker(maker: TrackerMaker, folder: Path) -> None:
    """A tracker can be told of rounds with metrics and without, closed, and opened again at a later round.

    Args:
        maker: makes it, from the run folder, the settings by their dotted keys, and the round to go on from.
        folder: an empty one, for the run.

    Raises:
        AssertionError: with a sentence that says what is wrong.
    """
    settings = {"seed": 0, "method.name": "dsvgd", "model.hidden": [8]}
    bill = Upload(1, 80, 100, 70.5, 30, 40, 5, 0.5)
    metrics = {"accuracy": 0.5, "nll": 1.25, "ece_bins": 15, "class_accuracy": [0.5, None]}
    for start, error in ((0, None), (2, None), (4, ValueError("the run ended with an error"))):
        with working(f"Opening the tracker at round {start}"):
            tracker = maker(folder, settings, start)
            inside = tracker.__enter__()
        that(hasattr(inside, "after_round"), "__enter__() must give the tracker itself.")
        for round in range(start + 1, start + 4):
            particles = torch.arange(6.0).reshape(2, 3)
            state = State(round, particles, totals=Totals().add([bill] * round, 0))
            told = Told((bill,), (b"frame",), None if round % 2 else {"round": round, **metrics})
            with working(f"after_round() {'without' if told.metrics is None else 'with'} metrics"):
                inside.after_round(state, told)
            that(torch.equal(particles, torch.arange(6.0).reshape(2, 3)), "after_round() changes the particles.")
            fine = told.metrics in (None, {"round": round, **metrics})
            that(fine, "after_round() changes the metrics, which others are told of as well.")
        with working("Closing the tracker"):
            # Typed as returning nothing; whether it really does is what is looked at here.
            swallowed: object = tracker.__exit__(None if error is None else ValueError, error, None)  # type: ignore[func-returns-value]
        that(not swallowed, "__exit__() must not swallow errors: the run would look finished.")
