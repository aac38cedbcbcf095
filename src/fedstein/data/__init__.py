"""Data: sources, partitioners, who holds what, and the examples that an agent holds."""

from fedstein.data.examples import Dataset, Examples, Takes, as_examples, as_inputs, as_taken
from fedstein.data.frames import columns, from_frame
from fedstein.data.holdings import Holdings, fit_inputs, fit_targets, split_into_files, who_has_what
from fedstein.data.partition import PARTITIONERS, Partitioner, class_pairs, dirichlet, from_indices, iid
from fedstein.data.rows import LazyRows, Rows, chunks, joined, loaded, spooled
from fedstein.data.settings import DataConfig
from fedstein.data.shifts import SHIFTS, enlarge, shifted
from fedstein.data.sources import SOURCES, Held, Source, class_names
from fedstein.data.sources.cifar10 import find_cifar10, get_cifar10, load_cifar10
from fedstein.data.sources.digits import load_digits
from fedstein.data.sources.fashion_mnist import find_fashion_mnist, get_fashion_mnist, load_fashion_mnist
from fedstein.data.sources.files import load_examples, load_npz, load_own, save_examples

__all__ = [
    "PARTITIONERS",
    "SHIFTS",
    "SOURCES",
    "DataConfig",
    "Dataset",
    "Examples",
    "Held",
    "Holdings",
    "LazyRows",
    "Partitioner",
    "Rows",
    "Source",
    "Takes",
    "as_examples",
    "as_inputs",
    "as_taken",
    "chunks",
    "class_names",
    "class_pairs",
    "columns",
    "dirichlet",
    "enlarge",
    "find_cifar10",
    "find_fashion_mnist",
    "fit_inputs",
    "fit_targets",
    "from_frame",
    "from_indices",
    "get_cifar10",
    "get_fashion_mnist",
    "iid",
    "joined",
    "load_cifar10",
    "load_digits",
    "load_examples",
    "load_fashion_mnist",
    "load_npz",
    "load_own",
    "loaded",
    "save_examples",
    "shifted",
    "split_into_files",
    "spooled",
    "who_has_what",
]
