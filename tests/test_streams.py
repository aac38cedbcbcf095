from __future__ import annotations

import torch

from fedstein.streams import stream


def first(*place):
    return torch.rand(4, generator=stream(*place)).tolist()


def test_every_place_has_a_stream_of_its_own_and_always_the_same():
    places = [(seed, purpose, r, a) for seed in (0, 1) for purpose in ("a", "b") for r in (0, 1) for a in (0, 1)]
    draws = [first(*place) for place in places]
    assert len({tuple(draw) for draw in draws}) == len(places)
    assert draws == [first(*place) for place in places]


def test_streams_are_the_same_on_every_machine():
    assert stream(7, "batches", 3, 1).initial_seed() == 714889155111055614
