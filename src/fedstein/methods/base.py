"""What a method is: settings, how particles start, what an agent does in a visit, what it keeps afterwards.

An engine calls, in this order,

    particles = method.start(...)                      once, at the server
    moved     = method.visit(visit)                    at the scheduled agent
    memory    = method.settle(visit, applied)          at the agent, with what the server really applied
    particles = particles + applied                    at the server
    particles = method.server_step(particles, ...)     at the server, once a round

Everything a method needs is in `Visit`; it reads no files and keeps no state of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Protocol, Self

import torch
from pydantic import AfterValidator, Field
from torch import Tensor

from fedstein.checked import Checked
from fedstein.data import Examples, Rows
from fedstein.errors import UserError
from fedstein.inference import STEP_RULES, Prior, StepRule, step_rule
from fedstein.models import ParticleModel, Task

__all__ = ["BayesianMethod", "Draws", "Likelihood", "Memory", "Method", "StepName", "Visit", "minibatches", "places"]

Memory = dict[str, Tensor]
"""What an agent keeps between visits. All of it is derived from its data: erasing an agent deletes it."""

Likelihood = Literal["mean", "sum"]
SMALLEST = 0.02  # what is left of a step where annealing has ended
StepName = Annotated[str, AfterValidator(STEP_RULES.check)]


class Draws(Protocol):
    """The random stream of a purpose: of this round, or of one that is named and so the same at every visit."""

    def __call__(self, purpose: str, *, round: int = ...) -> torch.Generator: ...


@dataclass(frozen=True)
class Visit:
    """One scheduling of one agent, as the agent sees it."""

    model: ParticleModel
    data: Examples
    prior: Prior
    particles: Tensor  # downloaded, never changed; where the model computes, as the memory is
    memory: Memory
    round: int  # from 0
    agents: int  # how many agents there are in all
    shares: tuple[float, ...]  # the weights of all differences that this round will apply
    stream: Draws  # by purpose


class Method(Checked):
    """The settings every method has, checked when it is made.

    A subclass adds its own and says what a visit is. `central` methods get all data as one agent.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    central: ClassVar[bool] = False
    samples: ClassVar[bool] = False  # the particles after a round are draws of the posterior: their mean is none

    particles: int = Field(10, ge=1, description="N_p, how many particles stand for the posterior")
    local_steps: int = Field(20, ge=1, description="L, steps in a visit")
    batch: int = Field(100, ge=1, description="examples of a minibatch; all of them where an agent has fewer")
    step: StepName = Field("ema-adagrad", description="step rule, with an empty memory at each visit")
    step_size: float = Field(1e-3, gt=0, le=1e30, allow_inf_nan=False, description="epsilon of the step rule")
    anneal_over: int | None = Field(
        None, ge=1, description="rounds over which steps shrink evenly, to a fiftieth; they stay whole if left out"
    )
    anneal_from: int = Field(0, ge=0, description="rounds that are done before these begin")

    def size_in(self, round: int) -> float:
        """The step's size in a round, counted from 0."""
        if self.anneal_over is None:
            return self.step_size
        left = 1 - (round - self.anneal_from) / self.anneal_over
        return self.step_size * min(1.0, max(SMALLEST, left))

    def annealed_anew(self, start: int, rounds: int | None) -> Self:
        """The same method for rounds after training: steps are whole again, and shrink over these; never, if None."""
        if self.anneal_over is None:
            return self
        return self.model_copy(update={"anneal_from": start, "anneal_over": rounds})

    def check(self, prior: Prior) -> None:
        """Refuse a problem that the settings do not fit, before any work is done."""

    def start(self, task: Task, generator: torch.Generator) -> Tensor:
        """The first particles: draws of the prior, the usual starting weights of a network, or around given values."""
        if task.init == "prior":
            return task.prior.draw((self.particles, task.model.dim), generator)
        if task.init == "module" and task.start is not None:
            return task.start + task.spread * torch.randn(self.particles, task.model.dim, generator=generator)
        return task.model.draw(self.particles, generator)

    @property
    def remembers(self) -> bool:
        """Whether an agent that has lost its memory would count its data wrongly."""
        return False

    @property
    def forgets_by(self) -> tuple[str, ...]:
        """The ways in which a model that was trained with it can be made to forget; retraining always can."""
        return ()

    @property
    def can_be_taken_back(self) -> bool:
        """Whether what an agent has contributed can be taken back; then the five methods below work."""
        return False

    def contribution(self, memory: Memory) -> Memory:
        """What of an agent's memory is its contribution to the model."""
        return {}

    def contribution_size(self, memory: Memory) -> float | None:
        """How much there is to take back; None if there is nothing."""
        return None

    def portion(self, total: Tensor, parts: int, prior: Prior) -> Tensor:
        """One of so many equal parts of a displacement, as an agent that stays takes it over."""
        raise UserError(f"What an agent contributes to a run of {self.name} cannot be handed over.")

    def take_over(self, memory: Memory, portion: Tensor) -> Memory:
        """The memory of an agent that stays, with a portion of what one that leaves had moved."""
        raise UserError(f"What an agent contributes to a run of {self.name} cannot be handed over.")

    def inherit(self, memory: Memory) -> Memory:
        """What an agent begins with when it has worked with another method on the same model before."""
        return {}

    def visit(self, visit: Visit) -> Tensor:
        """The particles where this agent would move them."""
        raise NotImplementedError

    def settle(self, visit: Visit, applied: Tensor) -> Memory:
        """What the agent keeps, now that the server has added `applied` to the particles."""
        return {}

    def server_step(self, particles: Tensor, generator: torch.Generator) -> Tensor:
        """The particles after a round's differences were added; most methods leave them."""
        return particles

    def minibatches(self, visit: Visit) -> Iterator[tuple[Tensor, Tensor]]:
        """(x, y) for each local step, where the particles are: data rests on the CPU, and a batch of it moves."""
        draws = visit.stream("augmentation")
        batches = minibatches(visit.data, self.batch, self.local_steps, visit.stream("batches"), draws)
        device = visit.particles.device
        return batches if device.type == "cpu" else _on(device, batches)


class BayesianMethod(Method):
    """A method with a posterior: how much the data weighs against the prior."""

    temperature: float = Field(
        1.0, ge=1e-15, le=1e15, allow_inf_nan=False, description="weight of the prior against the data"
    )
    likelihood: Likelihood = Field(
        "sum", description="an agent's loss counts as its sum over examples (equation 2) or its mean (equation 7)"
    )

    def data_weight(self, visit: Visit) -> float:
        """What the mean loss is multiplied with: 1/temperature, times N_k if losses are summed."""
        return (len(visit.data) if self.likelihood == "sum" else 1.0) / self.temperature

    def rule(self, weight: float, round: int) -> StepRule:
        """The step rule of a round. The plain step is divided by the weight of the data.

        So it is a learning rate on the mean loss, whatever the number of examples and the temperature; the
        adaptive rules do not see the scale of the target anyway.
        """
        size = self.size_in(round)
        return step_rule(self.step, size / weight if self.step == "gradient" else size)


def _on(device: torch.device, batches: Iterator[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    """The same batches on a device; all of the examples, which are the same batch again and again, move once."""
    rests, moved = None, None
    for x, y in batches:
        if moved is None or x is not rests:
            rests, moved = x, (x.to(device), y.to(device))
        yield moved


def minibatches(
    data: Examples, batch: int, steps: int, generator: torch.Generator, draws: torch.Generator | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """`steps` minibatches in shuffled order, every example once before any comes again.

    Args:
        data: of an agent.
        batch: examples of each; all of them, in their order, where the agent has no more.
        steps: how many.
        generator: of the order.
        draws: of what a data set draws for an item each time; the same for every batch if left out.
    """
    for now in places(len(data), batch, steps, generator):
        yield _read(data.x, now, draws), data.y if isinstance(now, slice) else data.y[now]


def places(count: int, batch: int, steps: int, generator: torch.Generator) -> Iterator[Tensor | slice]:
    """Where the examples of each minibatch are.

    Args:
        count: of the examples there are.
        batch: of each; all of them, in their order, where there are no more.
        steps: how many.
        generator: of the order.
    """
    if batch >= count:
        for _ in range(steps):
            yield slice(None)
        return
    order = torch.empty(0, dtype=torch.int64)
    for _ in range(steps):
        if len(order) < batch:
            order = torch.cat([order, torch.randperm(count, generator=generator)])
        now, order = order[:batch], order[batch:]
        yield now


def _read(x: Rows, where: Tensor | slice, draws: torch.Generator | None) -> Tensor:
    if isinstance(x, Tensor):
        return x if isinstance(where, slice) else x[where]
    return x.read(where, 0 if draws is None else int(torch.randint(2**62, (1,), generator=draws)))
