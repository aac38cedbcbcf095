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
    for data in ((x, [0, 1]), [(x[0], 0), (x[1], 1), (x[1], 1)], as_examples((x, [0, 1]), "a", tokens=True)):
        examples = as_examples(data, "a", tokens=True)
        assert examples.x.dtype == torch.int64
        assert examples.x[:2].tolist() == IDS
        assert as_examples(data, "a").x.dtype == torch.float32
    assert as_inputs(x, "x", torch.Size([3]), tokens=True).dtype == torch.int64
    assert as_inputs(x, "x", torch.Size([3])).dtype == torch.float32


def test_ids_of_bytes_are_no_image():
    module = nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(12, 2))
    given = take_in(module, [(np.array(IDS, dtype=np.uint8), [0, 1])])
    assert given.agents[0].x.tolist() == IDS


def test_large_ids_are_exact():
    large = torch.tensor([[2**24 + 1, 2**53 + 1]])
    assert torch.equal(as_examples((large, [0]), "a", tokens=True).x, large)


@pytest.mark.parametrize("bad", [0.5, torch.nan, torch.inf])
def test_what_is_no_token(bad):
    with pytest.raises(UserError, match=r"a: x must be token ids"):
        as_examples((torch.tensor([[1.0, bad]]), [0]), "a", tokens=True)
    with pytest.raises(UserError, match="x must be token ids"):
        as_inputs(torch.tensor([[1.0, bad]]), "x", torch.Size([2]), tokens=True)


def test_from_numbers_to_tokens_by_what_the_module_takes(generator):
    model = TorchModule(nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(12, 2)), way="auto")
    first = as_examples((IDS, [0, 1]), "a")
    examples = as_examples((IDS, [0, 1]), "a", tokens=model.takes_tokens(first.x))
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
