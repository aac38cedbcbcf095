from __future__ import annotations

import os
import re
import shutil
import signal

# One BLAS thread in each test process: pytest-xdist runs as many processes as there are cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
# Trainings have two threads unless they are told otherwise: one that waits for the other leaves its core alone.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from fedstein.data import Dataset, load_fashion_mnist
from fedstein.deploy.flower.trial import Federation, federation

torch.set_num_threads(1)
collect_ignore = ["fuzz/fuzz_frame.py"]  # a program of its own, which registers a part when it is imported
# The same examples every time where a red build would be nobody's fault; new ones on a developer's machine.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


# Tests that share a federation, a Ray or runs that take seconds are done by one worker, one after the other: every
# worker makes its own. (The marks of xdist's own way, loadgroup, do not reach its scheduler with this pytest.)
TOGETHER = {
    r"test_conformance\.py::.*\[ray-": "ray",
    r"test_conformance\.py::.*\[simulation-": "simulation",
    r"test_conformance\.py::.*\[deployment-": "conforming deployment",  # beside the one whose parts are killed
    r"test_deployment\.py::": "deployment",
    r"test_simulation\.py::": "simulation",
    r"test_engines\.py::|test_engines_of_our_own": "engines",
    r"test_plugin\.py::": "plugin",
    r"test_cli\.py::": "cli",
    r"test_pages\.py::": "pages",
    r"test_written\.py::": "written",
    r"test_forget\.py::.*(guarded|letter)": "forgetting a mixture",
    r"test_sweeps\.py::.*(changed|more_runs)": "finished sweep",
}


def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return next((group for pattern, group in TOGETHER.items() if re.search(pattern, nodeid)), nodeid)

    return Together(config, log)


@pytest.fixture(scope="session")
def fashion_mnist() -> Dataset:
    """The real Fashion-MNIST. `make test` gets it; nothing smaller stands in for it."""
    return load_fashion_mnist()


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture(autouse=True)
def one_thread_again() -> Iterator[None]:
    """Trainings set the number of threads that their config says: the next test has one again."""
    yield
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """A command that is run inside a test answers Ctrl-C in its own way, and leaves that to whoever comes next."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


NETS = Path(__file__).with_name("nets.py")
AGENTS = ("north", "south", "west")
NETWORKS = ["nets:make_cnn", "nets:Backbone", "nets:Rows"]  # that the nodes let a server use


@pytest.fixture(scope="session")
def simulation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A SuperLink that simulates its nodes. Tests that use it share it: they are in the xdist group 'simulation'."""
    with federation(tmp_path_factory.mktemp("simulation") / "site", simulated=True) as here:
        shutil.copy(NETS, here.folder)
        here.start_link()
        yield here


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A SuperLink with TLS and three nodes with keys and data of their own; the xdist group 'deployment' shares it."""
    with federation(tmp_path_factory.mktemp("deployment") / "site") as here:
        here.fedstein("data", "split", "data", "--set", "data.name=digits", "--set", "data.agents=3")
        (here.folder / "server").mkdir()
        os.link(here.folder / "data" / "test.npz", here.folder / "server" / "test.npz")
        here.start_link()
        shutil.copy(NETS, here.folder)
        for number, name in enumerate(AGENTS):
            here.register(name)
            here.start_node(
                name, here.folder / "data" / f"agent-{number}.npz", ["nets:make_cnn", "nets:Backbone", "nets:Rows"]
            )
        yield here
