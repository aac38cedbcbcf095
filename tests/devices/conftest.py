"""A second device to test with where there is none: `twin`, which torch takes for an accelerator.

Its tensors have a CPU tensor inside, and every operation is the CPU's, so results are the CPU's bit for bit. But it is
as strict as an accelerator, and stricter: operations refuse tensors of both devices, indices included; only numbers
(tensors without a dimension) may come from the CPU. The CPU's generators draw nothing on it, numpy gets nothing of it,
and it has no float64, as MPS has none. So what is made on the wrong device is refused where it is first used.

It stands on an interface of torch that may change.
"""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as tree
from torch.utils import backend_registration

aten = torch.ops.aten
CROSSES = {aten.copy_.default, aten._to_copy.default, aten._copy_from.default}
KEEPS = []  # registrations live as long as their library


class Module(getattr(backend_registration, "_DummyBackendModule", object)):
    """What stands where `torch.cuda` does."""

    done = Counter()  # noqa: RUF012  (operations, by name)
    bf16 = True

    def get_amp_supported_dtype(self):
        return [torch.bfloat16]

    def is_bf16_supported(self):
        return self.bf16

    def get_device_name(self, device=None):
        return "Stand-in"

    def synchronize(self, device=None):
        pass


class Twin(Tensor):
    """A tensor on the stand-in."""

    @staticmethod
    def __new__(cls, inside):
        if inside.dtype in (torch.float64, torch.complex128):
            raise TypeError("twin has no float64")
        place = {"strides": inside.stride(), "storage_offset": inside.storage_offset(), "device": "twin:0"}
        made = Tensor._make_wrapper_subclass(cls, inside.shape, dtype=inside.dtype, **place)
        made.inside = inside
        return made

    def __repr__(self):
        return f"Twin({self.inside})"

    def __deepcopy__(self, memo):
        made = Twin(self.inside.detach().clone()).requires_grad_(self.requires_grad)
        made._is_param = getattr(self, "_is_param", False)
        return memo.setdefault(id(self), made)

    @property
    def data(self):
        return self.detach()

    @data.setter
    def data(self, value):  # torch would change what is outside alone
        if not isinstance(value, Twin):
            raise TypeError("expected a tensor on twin")
        Tensor.data.__set__(self, value)
        self.inside = value.inside

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return run(operation, args, kwargs or {})


def run(operation, args, kwargs):
    """An operation of the CPU on what is inside, if all of it is on one device."""
    flat = tree.tree_leaves((args, kwargs))
    tensors = [value for value in flat if isinstance(value, Tensor)]
    twins = [value for value in tensors if isinstance(value, Twin)]
    strange = [value for value in tensors if not isinstance(value, Twin) and value.dim()]
    if operation not in CROSSES and strange:
        raise RuntimeError(f"{operation}: tensors on twin and on {strange[0].device}, {tuple(strange[0].shape)}")
    if any(isinstance(value, torch.Generator) for value in flat):
        raise RuntimeError(f"{operation}: expected a generator of twin")
    wanted = kwargs.get("device")
    here = bool(twins) if wanted is None else torch.device(wanted).type == "twin"
    if wanted is not None:
        kwargs = kwargs | {"device": torch.device("cpu")}
    inside = tree.tree_map(lambda value: value.inside if isinstance(value, Twin) else value, (args, kwargs))
    with torch._C._DisableTorchDispatch():
        came = operation(*inside[0], **inside[1])
    Module.done[str(operation)] += 1
    if operation in CROSSES and here and strange:
        Module.done["came"] += 1
    outside = {id(value.inside): value for value in twins}  # what is changed in place comes back as itself

    def back(value):
        if not isinstance(value, Tensor):
            return value
        if id(value) in outside:
            return outside[id(value)]
        return Twin(value) if here else value

    return args[0] if operation is aten.copy_.default else tree.tree_map(back, came)


def empty(size, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    return Twin(torch.empty(size, dtype=dtype, device="cpu"))


def empty_strided(size, stride, dtype=None, layout=None, device=None, pin_memory=None):
    return Twin(torch.empty_strided(size, stride, dtype=dtype, device="cpu"))


def copy_from(value, to, non_blocking=False):
    inside = [one.inside if isinstance(one, Twin) else one for one in (value, to)]
    inside[1].copy_(inside[0])
    Module.done["came"] += not isinstance(value, Twin)
    return to


def make_twin():
    """Make the device known to torch, once in a process."""
    backend_registration._setup_privateuseone_for_python_backend("twin", backend_module=Module())
    own = torch.library.Library("aten", "IMPL")
    for name, function in (("empty.memory_format", empty), ("empty_strided", empty_strided), ("_copy_from", copy_from)):
        own.impl(name, function, "PrivateUse1")
    every = torch.library.Library("_", "IMPL")
    every.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    KEEPS.extend([own, every])


def missing(name):
    """Why there is no such device here; None if there is one."""
    if name == "twin":
        known = hasattr(backend_registration, "_setup_privateuseone_for_python_backend")
        return None if known else "this torch cannot be given a device from Python"
    there = torch.cuda.is_available() if name == "cuda" else torch.backends.mps.is_available()
    return None if there else f"there is no {name} here"


@pytest.fixture(scope="session")
def made_twin():
    make_twin()


@pytest.fixture
def known_twin(made_twin):
    """The stand-in. Its backward passes are done by this thread: others do not see the tensors of Python's making."""
    with torch.autograd.set_multithreading_enabled(False):
        yield


@pytest.fixture(params=["twin", "cuda", "mps"])
def device(request):
    """A device that is not the CPU: the stand-in always, others where they are."""
    if why := missing(request.param):
        pytest.skip(why)
    if request.param == "twin":
        request.getfixturevalue("known_twin")
    return torch.empty(0, device=request.param).device


@pytest.fixture
def twin(known_twin):
    """The stand-in alone, for what is equal there bit for bit."""
    return torch.device("twin:0")


@pytest.fixture
def stand_in(known_twin):
    """The module of the stand-in, to change what it can."""
    return Module


@pytest.fixture
def work():
    """Which operations the stand-in has done since the test began, by name; `came`: tensors from the CPU."""
    Module.done.clear()
    return lambda: Module.done
