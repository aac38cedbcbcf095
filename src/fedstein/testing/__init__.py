"""Checks that a part of one's own keeps what its seam asks of it: for the tests of any package.

    from fedstein.testing import check_sparsifier

    def test_mine():
        check_sparsifier(Mine())

Each check takes a second or two, and raises AssertionError with a sentence that says what is wrong.
"""

from fedstein.testing.coding import check_entry_coder, check_position_coder, check_quantiser, check_sparsifier
from fedstein.testing.data import check_data_source, check_partitioner
from fedstein.testing.engines import check_engine
from fedstein.testing.factors import check_factor
from fedstein.testing.likelihoods import check_likelihood
from fedstein.testing.methods import check_method
from fedstein.testing.parts import check_kernel, check_posterior, check_scheduler, check_step_rule, check_tracker

__all__ = [
    "check_data_source",
    "check_engine",
    "check_entry_coder",
    "check_factor",
    "check_kernel",
    "check_likelihood",
    "check_method",
    "check_partitioner",
    "check_position_coder",
    "check_posterior",
    "check_quantiser",
    "check_scheduler",
    "check_sparsifier",
    "check_step_rule",
    "check_tracker",
]
