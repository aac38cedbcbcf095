from __future__ import annotations

import os

# One BLAS thread in each test process: pytest-xdist runs as many processes as there are cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from fedstein.data import Dataset, load_fashion_mnist
from fedstein.flower.trial import Site, site

torch.set_num_threads(1)
# The same examples every time where a red build would be nobody's fault; new ones on a developer's machine.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


@pytest.fixture(scope="session")
def fashion_mnist() -> Dataset:
    """The real Fashion-MNIST. `make test` gets it; nothing smaller stands in for it."""
    return load_fashion_mnist()


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


AGENTS = ("north", "south", "west")


@pytest.fixture(scope="session")
def simulation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A SuperLink that simulates its nodes. Tests that use it share it: they are in the xdist group 'simulation'."""
    with site(tmp_path_factory.mktemp("simulation") / "site", simulated=True) as found:
        found.start_link()
        yield found


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A SuperLink with TLS and three nodes with keys and data of their own; the xdist group 'deployment' shares it."""
    with site(tmp_path_factory.mktemp("deployment") / "site") as found:
        found.fedstein("data", "split", "data", "--set", "data.name=digits", "--set", "data.agents=3")
        (found.folder / "server").mkdir()
        os.link(found.folder / "data" / "test.npz", found.folder / "server" / "test.npz")
        found.start_link()
        for number, name in enumerate(AGENTS):
            found.register(name)
            found.start_node(name, found.folder / "data" / f"agent-{number}.npz")
        yield found
