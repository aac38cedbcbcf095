from __future__ import annotations

import os

# One BLAS thread in each test process: pytest-xdist runs as many processes as there are cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import pytest
import torch
from hypothesis import settings

from fedstein.data import Dataset, load_fashion_mnist

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
