"""What was given in Python and no config can say: a module built on the spot, data in memory, a loss, a prior.

A run of such things is recorded like any other. To go on with it they are given again, and must be the same: the
module by its structure (the names, shapes and types of its parameters), the data by a digest of each agent's examples,
which is kept in that agent's own folder and so purged with it.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedstein.data import Examples, Held, Rows, Takes
from fedstein.data.examples import as_taken, of_one_kind, read_examples
from fedstein.data.rows import MEMORY
from fedstein.devices import CPU
from fedstein.errors import UserError
from fedstein.inference import Prior
from fedstein.likelihoods import Categorical, Likelihood
from fedstein.models import Before, Init, Loss, Precision, TorchModule, Way, cross_entropy, particle_model, split_head
from fedstein.models.dense import DenseStack
from fedstein.models.named import on_cpu
from fedstein.runs.structure import (
    Structure,
    keep_structure,
    kept_structure,
    loss_in_words,
    prior_in_words,
    structure_of,
)
from fedstein.settings import Config
from fedstein.store.files import write

__all__ = ["Given", "check_given", "keep_digests", "take_in"]

_SOME = 64  # examples by which a large data set is known


@dataclass(frozen=True, repr=False)
class Given:
    """A module and everybody's examples, checked."""

    module: nn.Module
    model: DenseStack | TorchModule
    agents: tuple[Examples, ...]
    test: Examples | None = None
    loss: Loss | Likelihood = cross_entropy
    prior: Prior | None = None  # where no config can say it
    outputs: int = 0  # of the module, for one input; 0: the loss is one's own
    names: tuple[str, ...] = ()  # what people call the agents
    class_names: tuple[str, ...] = ()  # and the classes
    before: Before | None = None  # what is frozen before the part that is learnt; `model` is of that part then
    takes: Takes = "numbers"  # what the module does

    def __repr__(self) -> str:
        return f"Given({type(self.module).__name__}, {len(self.agents)} agents)"

    def __getstate__(self) -> dict[str, Any]:
        """What travels to another process is on the CPU, and is moved on from there."""
        return self.__dict__ | {"model": self.model.on(CPU), "before": self.before and self.before.on(CPU)}

    def start(self) -> Tensor:
        """(dim,) the values of what is learnt, as the module has them."""
        learnt = [value for value in self.module.parameters() if value.requires_grad]
        return torch.cat([value.detach().reshape(-1).float() for value in learnt])

    def on(self, device: torch.device) -> Given:
        """The same, to compute on another device."""
        if device == self.model.device:
            return self
        return replace(self, model=self.model.on(device), before=self.before and self.before.on(device))

    def whole(self) -> nn.Module:
        """The module as it was when it was given, where there is a copy of it: a user may have changed it since."""
        if self.before is not None:
            return self.before.whole
        return self.model.module if isinstance(self.model, TorchModule) else self.module

    def structure(self) -> Structure:
        """What the fingerprint is of, but for the values, in words."""
        return structure_of(self.module, self.loss, self.prior)

    def fingerprint(self, init: Init = "fan-in") -> str:
        """Of the structure of the module, of the values that the run hangs on, and the names of loss and prior.

        Args:
            init: where particles start; around the module's own values those count, else only what is frozen.
        """
        kinds = [(name, type(part).__qualname__) for name, part in self.module.named_modules()]
        shapes = [
            (name, tuple(value.shape), str(value.dtype), value.requires_grad) for name, value in _tensors(self.module)
        ]
        said = [kinds, shapes, loss_in_words(self.loss), prior_in_words(self.prior)]
        content = hashlib.sha256(repr(said).encode())
        for _, value in _tensors(self.module):
            if init == "module" or not value.requires_grad:
                content.update(value.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
        return content.hexdigest()[:32]


def _tensors(module: nn.Module) -> list[tuple[str, Tensor]]:
    return [*module.named_parameters(), *module.named_buffers()]


def take_in(
    module: nn.Module,
    agents: Sequence[Any] | Held,
    test: Any = None,
    loss: Loss | Likelihood = cross_entropy,
    prior: Prior | None = None,
    precision: Precision = "float32",
    way: Way | Literal["auto"] = "auto",
    class_names: Sequence[str] = (),
    device: torch.device = CPU,
) -> Given:
    """Check what a user gave, and make it what training takes.

    Args:
        module: maps (B, ...) inputs to (B, classes) logits, or to whatever `loss` takes.
        agents: one (x, y) pair or data set of torch for each, None for an agent that was erased; or a `Held`, which
            brings test data and names as well.
        test: the same, or None.
        loss: a likelihood, or per-example losses.
        prior: where it is not N(0, std^2 I).
        precision: of the products.
        way: how several particles are computed, where the module is no dense stack.
        class_names: what people call the classes; as the data sets say if left out.
        device: where it computes. Data stays on the CPU; a module that is on yet another device is moved, with a
            warning.

    Raises:
        UserError: something does not fit.
    """
    people: tuple[str, ...] = ()
    if isinstance(agents, Held):
        held = agents
        people, class_names = held.agent_names, class_names or held.class_names
        test = held.test if test is None else test
        agents = [data if len(data) else None for data in held.agents]
    if not isinstance(module, nn.Module):
        raise UserError(f"The 'module' must be a Module. Got {module!r} instead.")
    if not isinstance(loss, Likelihood) and not callable(loss):
        raise UserError(
            "The 'loss' must be a function of outputs and targets that returns the loss of each example, for instance "
            f"fedstein.models.cross_entropy. Got {loss!r} instead."
        )
    if lazy := [name for name, value in _tensors(module) if is_lazy(value)]:
        raise UserError(
            f"The 'module' must know the shapes of its parameters; '{lazy[0]}' does not yet. Run it once on an example "
            "first: module(x[:1])."
        )
    if not isinstance(agents, list | tuple) or len(agents) == 0:
        raise UserError(f"The 'agents' must be a list of one data set for each agent. Got {type(agents).__name__}.")
    if all(data is None for data in agents):
        raise UserError("The 'agents' must be a list of one data set for each agent. Got None for all of them.")
    names = [f"agents[{k}]" for k in range(len(agents))] + (["test"] if test is not None else [])
    given = [*agents, test] if test is not None else list(agents)
    memory = MEMORY // len(given)  # everybody's together
    known = {
        name: read_examples(data, name, memory) for name, data in zip(names, given, strict=True) if data is not None
    }
    first_name, first = next(iter(known.items()))
    for name, data in known.items():
        if data.x.shape[1:] != first.x.shape[1:]:
            raise UserError(
                f"{name}: x must be shaped like that of {first_name}, {tuple(first.x.shape[1:])}. "
                f"Got {tuple(data.x.shape[1:])} instead."
            )
    known = of_one_kind(known)
    first = known[first_name]
    module = on_cpu(module, "The 'module'", device)
    some = first.x[:2].float()
    model = particle_model(module, loss, precision, some, way, device)
    whole = some if torch.equal(some, some.round()) else torch.zeros_like(some)
    takes = model.takes(whole) if isinstance(model, TorchModule) else "numbers"
    known = {name: as_taken(data, name, takes) for name, data in known.items()}
    first = known[first_name]
    outputs = 0
    if model.likelihood.predicts:
        outputs = _outputs(model, first.x[:1], first_name)
        known = {name: Examples(data.x, model.likelihood.check(data.y, name, outputs)) for name, data in known.items()}
        first = known[first_name]
    if isinstance(model, TorchModule):
        model.check(first.x[:2], first.y[:2])
        for note in model.notes:
            warnings.warn(note, stacklevel=3)
    before = None
    if isinstance(model, TorchModule) and (parts := _parted(module, first.x[:2])) is not None:
        head, before = parts[0], parts[1].on(device)
        model = particle_model(head, loss, precision, before(first.x[:2]), way, device)
    everyone = tuple(known.get(f"agents[{k}]", first.none()) for k in range(len(agents)))
    classes = tuple(class_names) or _class_names(given)
    if isinstance(model.likelihood, Categorical) and classes and len(classes) != outputs and class_names:
        raise UserError(f"The 'class_names' must be {outputs}, one for each output. Got {len(classes)}.")
    return Given(
        module, model, everyone, known.get("test"), loss, prior, outputs, people,
        classes if isinstance(model.likelihood, Categorical) and len(classes) == outputs else (), before, takes,
    )  # fmt: skip


def _parted(module: nn.Module, example: Tensor) -> tuple[nn.Module, Before] | None:
    """What is frozen before what is learnt, where it can be gone through once for each input."""
    if all(value.requires_grad for value in module.parameters()):
        return None
    return split_head(module, example)


def _class_names(given: Sequence[Any]) -> tuple[str, ...]:
    """As data sets have them: ours, torchvision's."""
    known: dict[tuple[str, ...], None] = {}
    for data in given:
        for key in ("class_names", "classes"):
            names = getattr(data, key, None)
            if isinstance(names, list | tuple) and names and all(isinstance(name, str) for name in names):
                known[tuple(names)] = None
                break
    if len(known) > 1:
        raise UserError(
            f"The data sets must call the classes alike, in one order. Got {' and '.join(map(str, list(known)[:2]))}."
        )
    one = next(iter(known), ())
    return one if len(set(one)) == len(one) else ()


def _outputs(model: DenseStack | TorchModule, x: Tensor, name: str) -> int:
    """How many numbers the module gives for one input."""
    try:
        shape = model.outputs(model.draw(1, torch.Generator()).to(model.device), x[:1].to(model.device)).shape
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise UserError(f"The 'module' does not run on the inputs of {name} ({x.dtype}): {error}.") from error
    if len(shape) != 3:
        raise UserError(
            f"The 'module' must return (B, outputs) for (B, ...) inputs. Got (B, {str(tuple(shape[2:]))[1:]}."
        )
    return shape[2]


def keep_digests(run: Path, given: Given) -> None:
    """Write down, in each agent's own folder, which examples it had; which the test set is; what the module is like."""
    keep_structure(run, given.structure())
    if given.test is not None:
        write(run / "test.sha256", _digest(given.test).encode())
    for agent, examples in enumerate(given.agents):
        if len(examples):
            folder = run / "agents" / f"agent-{agent}"
            folder.mkdir(parents=True, exist_ok=True)
            write(folder / "data.sha256", _digest(examples).encode())


def _check_test(run: Path, given: Given) -> None:
    kept = run / "test.sha256"
    if not kept.is_file():
        return
    if given.test is None:
        warnings.warn(f"The run '{run}' has a test set, and none is given: nothing can be evaluated.", stacklevel=4)
    elif kept.read_text(encoding="utf-8").strip() != _digest(given.test):
        raise UserError(f"The 'test' is not the one that run '{run}' was made with.")


def check_given(run: Path, given: Given, config: Config, erased: Sequence[int]) -> None:
    """Refuse what is not the same as before.

    Args:
        run: the folder.
        given: now.
        config: of the run.
        erased: the agents that take no part.
    """
    if given.fingerprint(config.prior.init) != config.model.fingerprint:
        values = "its values" if config.prior.init == "module" else "the values of what is frozen"
        then = kept_structure(run)
        how = f"the names, shapes or types of its parameters, {values}, the loss or the prior are others"
        if then is not None:
            how = then.unlike(given.structure(), values)
        raise UserError(f"The 'module' is not the one that run '{run}' was made with: {how}. Give the same again.")
    _check_test(run, given)
    for agent in [agent for agent in range(len(given.agents)) if agent not in erased]:
        kept = run / "agents" / f"agent-{agent}" / "data.sha256"
        if kept.is_file() and kept.read_text(encoding="utf-8").strip() != _digest(given.agents[agent]):
            raise UserError(f"agents[{agent}] are not the examples that run '{run}' was made with.")


def _digest(examples: Examples) -> str:
    content = hashlib.sha256(repr((tuple(examples.x.shape), str(examples.y.dtype))).encode())
    for part in (_told_by(examples.x), examples.y):
        content.update(part.contiguous().numpy().tobytes())
    return content.hexdigest()


def _told_by(x: Rows) -> Tensor:
    """Inputs by which a data set is known again: all, or some where they are read from somewhere."""
    if isinstance(x, Tensor):
        return x
    some = torch.linspace(0, len(x) - 1, min(len(x), _SOME)).long()
    told, again = x.read(some, 0), x.read(some, 0)
    return told if torch.equal(told, again) else torch.empty(0)  # drawn by the data set itself: nothing to go by
