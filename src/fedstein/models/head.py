"""A module whose trained part is its last: what is frozen before it need be computed only once for each input."""

from __future__ import annotations

import copy
import hashlib
import itertools
import sys
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedstein.devices import CPU
from fedstein.errors import UserError
from fedstein.models.held import single_output

__all__ = ["Before", "split_head"]

_CHUNK = 256  # inputs at a time, so that memory does not grow with the data


def split_head(module: nn.Module, example: Tensor) -> tuple[nn.Module, Before] | None:
    """The trained last part of `module`, and a function from the module's inputs to those of that part.

    The head is the smallest submodule with all parameters that require a gradient. It must be called once, with a
    single tensor (B, ...), and what it returns must be what the module returns, untouched. What comes before must treat
    each input alone, and not at random.

    Args:
        module: never changed.
        example: some inputs (B, ...), on which it is tried.

    Returns:
        Copies of both, or None where the module cannot be split so.
    """
    path = _home_of_trained(module)
    if not path:  # none is trained, or they have nothing less than the whole in common
        return None
    whole = copy.deepcopy(module).eval()
    head = whole.get_submodule(path)
    calls = _Calls()
    hooks = [
        head.register_forward_pre_hook(calls.begin, with_kwargs=True),
        head.register_forward_hook(calls.end),
    ]
    try:
        with torch.enable_grad():  # so that it shows if what goes into the head comes from something trained
            output = single_output(whole(example.clone()))
    except Exception:  # whatever is wrong with the module is told where it is trained as a whole
        return None
    finally:
        for hook in hooks:
            hook.remove()
    if not calls.were_the_last(output):
        return None
    before = Before(whole, path, calls.given[0].shape[1:], calls.given[0].dtype)
    try:
        own = copy.deepcopy(head)
        with torch.enable_grad():  # as above: some layers take another path without
            inputs, alone = before(example), before(example[:1])
            # On other inputs as well: what the head was told past its argument would be of the example still.
            same = torch.equal(single_output(own(inputs.clone())), output) and torch.equal(
                single_output(own(alone.clone())), single_output(whole(example[:1].clone()))
            )
    except (UserError, RuntimeError):
        return None
    near = inputs.shape[1:] == alone.shape[1:] and torch.allclose(
        inputs[:1].double(), alone.double(), rtol=1e-3, atol=1e-4 * float(inputs.double().abs().max())
    )
    if not near or not same:
        return None
    return own, before


def _home_of_trained(module: nn.Module) -> str:
    """The name of the smallest submodule with all parameters that are trained; empty if it is the module itself."""
    # Tied parameters under all their names: one that is used before the head as well belongs to both places.
    names = [name for name, p in module.named_parameters(remove_duplicate=False) if p.requires_grad]
    levels = zip(*(name.split(".")[:-1] for name in names), strict=False)  # as deep as the shallowest of them
    return ".".join(level[0] for level in itertools.takewhile(lambda level: len(set(level)) == 1, levels))


@dataclass
class _Calls:
    """How the head was called."""

    given: list[Tensor] = field(default_factory=list)  # what went in, as it was then, if it was a single tensor
    depends: bool = False  # what went in is a result of trained parameters
    returned: list[tuple[Tensor, int]] = field(default_factory=list)  # what came out, and its version then

    def begin(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if len(args) == 1 and not kwargs and isinstance(args[0], Tensor):
            self.depends |= args[0].requires_grad
            self.given.append(args[0].detach().clone())

    def end(self, _: nn.Module, __: Any, output: Any) -> None:
        output = single_output(output)
        self.returned.append((output, output._version))

    def were_the_last(self, output: Tensor) -> bool:
        """Whether there was one, and the module returned its very result."""
        if self.depends or len(self.given) != 1 or len(self.returned) != 1:
            return False
        returned, version = self.returned[0]
        return output is returned and output._version == version


class _Stop(Exception):  # noqa: N818  (no error: the rest of the forward pass is not wanted)
    """Carries what was on its way into the head."""

    def __init__(self, given: Tensor) -> None:
        super().__init__()
        self.given = given


@dataclass(frozen=True, repr=False, eq=False)
class Before:
    """The frozen part of a module: from its inputs to what goes into its head, both of them on the CPU."""

    whole: nn.Module
    path: str
    shape: torch.Size  # of what goes into the head, of one input
    dtype: torch.dtype
    device: torch.device = CPU  # where the work is done

    def on(self, device: torch.device) -> Before:
        """The same, but done on another device. The module that it is of is moved."""
        self.whole.to(device)
        return replace(self, device=device)

    def __getstate__(self) -> dict[str, Any]:
        """Without the digest: where it arrives, the code may be another one."""
        return {name: value for name, value in self.__dict__.items() if name != "identity"}

    def __call__(self, x: Tensor) -> Tensor:
        if len(x) == 0:
            return torch.empty(0, *self.shape, dtype=self.dtype)
        with torch.no_grad():
            return torch.cat([self._chunk(chunk.to(self.device)).cpu() for chunk in torch.split(x, _CHUNK)])

    @cached_property
    def identity(self) -> str:
        """A digest of what it computes: its layers and the values that are frozen; not the trained ones.

        It is taken once, however many agents' inputs go through: nothing of it changes.
        """
        kinds = [(name, type(part).__qualname__, _settings(part)) for name, part in self.whole.named_modules()]
        content = hashlib.sha256(repr((self.path, kinds, self.device.type, sorted(_code(self.whole)))).encode())
        trained = {name for name, value in self.whole.named_parameters(remove_duplicate=False) if value.requires_grad}
        for name, value in sorted(self.whole.state_dict().items()):
            if name not in trained:
                content.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
                content.update(value.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
        return content.hexdigest()

    def as_module(self) -> nn.Module:
        """The same as a module that can be traced: where the head was, what it would be given is passed on.

        Since the module returns the head's very result, this is what comes out.
        """
        whole = copy.deepcopy(self.whole).to(CPU)
        parent, _, name = self.path.rpartition(".")
        setattr(whole.get_submodule(parent), name, nn.Identity())
        return whole

    def _chunk(self, x: Tensor) -> Tensor:
        hook = self.whole.get_submodule(self.path).register_forward_pre_hook(_stop)
        try:
            self.whole(x.clone())  # a clone: it may change its inputs in place
        except _Stop as stop:
            given = stop.given
        else:
            raise UserError("The 'module' did not come to its trained part on some inputs: it cannot be split.")
        finally:
            hook.remove()
        if given.shape[:1] != x.shape[:1]:
            raise UserError(
                f"The trained part of the 'module' must be given (B, ...) for (B, ...) inputs. Got "
                f"{tuple(given.shape)} for {tuple(x.shape)}."
            )
        return given.clone()  # a view of something larger would keep it all


def _settings(part: nn.Module) -> list[tuple[str, str]]:
    """What a layer was made with, as far as it is plain."""
    plain = (bool, int, float, str, tuple, list, torch.dtype, type(None))
    own = [(name, repr(value)) for name, value in vars(part).items() if isinstance(value, plain)]
    return sorted((name, text) for name, text in own if name != "training")


def _code(module: nn.Module) -> set[str]:
    """SHA-256 of the files that its layers come from; torch's version is told elsewhere."""
    files = set()
    for kind in {type(part) for part in module.modules()}:
        file = getattr(sys.modules.get(kind.__module__), "__file__", None)
        if file is not None and not kind.__module__.startswith("torch.") and Path(file).is_file():
            files.add(hashlib.sha256(Path(file).read_bytes()).hexdigest())
    return files


def _stop(_: nn.Module, args: tuple[Any, ...]) -> None:
    raise _Stop(args[0])
