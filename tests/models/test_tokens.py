"""Token ids on their way from a user to a module: whole numbers all along."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from fedstein.data import as_examples, as_inputs
from fedstein.errors import UserError
from fedstein.models import TorchModule
from fedstein.runs.given import take_in

IDS = [[3, 1, 4], [1, 5, 9]]


@pytest.mark.filterwarnings("ignore:Inputs of bytes")  # as numbers, bytes are taken for images, and said to be
@pytest.mark.parametrize("kind", [np.int16, np.int32, np.int64, np.uint8, np.float32])
def test_tokens_stay_whole_numbers_if_told_so(kind):
    x = np.array(IDS, dtype=kind)
    for data in ((x, [0, 1]), [(x[0], 0), (x[1], 1), (x[1], 1)], as_examples((x, [0, 1]), "a", takes="ids")):
        examples = as_examples(data, "a", takes="ids")
        assert examples.x.dtype == torch.int64
        assert examples.x[:2].tolist() == IDS
        assert as_examples(data, "a").x.dtype == torch.float32
    assert as_inputs(x, "x", torch.Size([3]), takes="ids").dtype == torch.int64
    assert as_inputs(x, "x", torch.Size([3])).dtype == torch.float32


def test_ids_of_bytes_are_no_image():
    module = nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(12, 2))
    given = take_in(module, [(np.array(IDS, dtype=np.uint8), [0, 1])])
    assert given.agents[0].x.tolist() == IDS


def test_large_ids_are_exact():
    large = torch.tensor([[2**24 + 1, 2**53 + 1]])
    assert torch.equal(as_examples((large, [0]), "a", takes="ids").x, large)


@pytest.mark.parametrize(("kind", "least"), [(np.float16, 2**11), (np.float32, 2**24), (np.float64, 2**53)])
def test_ids_that_a_type_has_rounded_are_refused(kind, least):
    """Which id was meant is not known any more."""
    assert as_examples((np.array([[least - 1]], kind), [0]), "a", takes="ids").x.item() == least - 1
    for takes in ("ids", "either", "mixed"):
        refused = least if takes == "ids" else min(least, 2**24)
        with pytest.raises(UserError, match=f"a: x has whole numbers of {refused:,} and more"):
            as_examples((np.array([[least + 1]], kind), [0]), "a", takes=takes)


def test_unsigned_ids():
    for kind in (np.uint16, np.uint32, np.uint64):
        assert as_examples((np.array([[7, 9]], kind), [0]), "a", takes="ids").x.tolist() == [[7, 9]]
    with pytest.raises(UserError, match=r"a: x must be numbers .*beyond int64"):
        as_examples((np.array([[2**63]], np.uint64), [0]), "a")


def test_what_is_looked_up_beside_numbers_is_exact_or_refused():
    large, small = torch.tensor([[2**24 + 1, 3]]), torch.tensor([[2**24 - 1, 3]])
    assert as_examples((large, [0]), "a", takes="either").x.tolist() == large.tolist()
    assert as_examples((small, [0]), "a", takes="mixed").x.tolist() == small.tolist()
    assert as_examples((small / 2, [0]), "a", takes="either").x.dtype == torch.float32
    with pytest.raises(UserError, match="not all of which float32 has: another id might be looked up"):
        as_examples((large, [0]), "a", takes="mixed")
    for takes in ("either", "mixed"):
        with pytest.raises(UserError, match=r"a: x is of bytes \(uint8\), which are images"):
            as_examples((small.byte(), [0]), "a", takes=takes)


@pytest.mark.parametrize("bad", [0.5, torch.nan, torch.inf])
def test_what_is_no_token(bad):
    with pytest.raises(UserError, match=r"a: x must be token ids|a: x has NaN or infinity, first in row 0"):
        as_examples((torch.tensor([[1.0, bad]]), [0]), "a", takes="ids")
    with pytest.raises(UserError, match="x must be token ids"):
        as_inputs(torch.tensor([[1.0, bad]]), "x", torch.Size([2]), takes="ids")


def test_from_numbers_to_tokens_by_what_the_module_takes(generator):
    model = TorchModule(nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(12, 2)), way="auto")
    first = as_examples((IDS, [0, 1]), "a")
    examples = as_examples((IDS, [0, 1]), "a", takes=model.takes(first.x))
    model.check(examples.x, examples.y)
    assert model.loss_gradient(model.draw(2, generator), examples.x, examples.y).isfinite().all()


@pytest.mark.parametrize(
    "data",
    [
        ((torch.ones(3, 2), torch.ones(3, 4)), [0, 1, 0]),
        ((np.ones((3, 2)), np.ones((3, 2))), [0, 1, 0]),
        ({"ids": torch.ones(3, 2), "mask": torch.ones(3, 2)}, [0, 1, 0]),
        [((torch.ones(2), torch.ones(2)), 0)] * 3,
        [({"ids": torch.ones(2)}, 0)] * 3,
    ],
)
def test_several_inputs_are_refused(data):
    with pytest.raises(UserError, match=r"a: x must be one array or tensor.*several inputs"):
        as_examples(data, "a")


def test_items_that_are_mappings_are_refused():
    with pytest.raises(UserError, match=r"pairs .* Got a mapping with 'ids', 'label'"):
        as_examples([{"ids": [1, 2], "label": 0}] * 3, "a")


def test_rows_in_a_tuple_are_one_input():
    rows = tuple(np.ones(2, dtype=np.float32) * k for k in range(3))
    assert as_examples((rows, [0, 1, 0]), "a").x.tolist() == [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]
