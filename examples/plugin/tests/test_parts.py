"""Every part passes the suite of its seam: pytest examples/plugin/tests, with the package installed."""

from __future__ import annotations

from fedstein_example.fedprox import FedProx
from fedstein_example.random_k import RANDOM_K
from fedstein_example.shuffled import shuffled

from fedstein.testing import check_method, check_scheduler, check_sparsifier


def test_random_k():
    check_sparsifier(RANDOM_K)


def test_fedprox():
    check_method(FedProx)


def test_shuffled():
    check_scheduler(shuffled)
