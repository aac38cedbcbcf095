"""Data: sources, partitioners, and the examples that an agent holds."""

from fedstein.data.examples import Dataset, Examples, as_examples, as_inputs
from fedstein.data.fashion_mnist import find_fashion_mnist, get_fashion_mnist, load_fashion_mnist
from fedstein.data.partition import class_pairs, dirichlet, from_indices, iid
from fedstein.data.shifts import SHIFTS, enlarge, shifted
from fedstein.data.sources import (
    SOURCES,
    class_names,
    load_digits,
    load_examples,
    load_npz,
    load_own,
    load_source,
    load_test,
    save_examples,
)

__all__ = [
    "SHIFTS",
    "SOURCES",
    "Dataset",
    "Examples",
    "as_examples",
    "as_inputs",
    "class_names",
    "class_pairs",
    "dirichlet",
    "enlarge",
    "find_fashion_mnist",
    "from_indices",
    "get_fashion_mnist",
    "iid",
    "load_digits",
    "load_examples",
    "load_fashion_mnist",
    "load_npz",
    "load_own",
    "load_source",
    "load_test",
    "save_examples",
    "shifted",
]
