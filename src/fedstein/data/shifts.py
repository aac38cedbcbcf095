"""Test images that are not quite like those of the training: noise, rotation, occlusion."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["SHIFTS", "enlarge", "noisy", "occluded", "rotated", "shifted"]


def noisy(images: Tensor, level: float, generator: torch.Generator) -> Tensor:
    """Gaussian noise of standard deviation `level` on (n, 1, h, w) in 0..1, which they stay in."""
    return (images + level * torch.randn(images.shape, generator=generator)).clamp_(0, 1)


def rotated(images: Tensor, degrees: float, generator: torch.Generator) -> Tensor:
    """Each turned by +degrees or -degrees about its middle; what comes in from outside is black."""
    sign = 2.0 * torch.randint(2, (len(images),), generator=generator) - 1
    angle = sign * math.radians(degrees)
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros(len(images))
    shape = images.shape[-2] / images.shape[-1]  # the grid goes from -1 to 1 along either side
    turns = torch.stack([torch.stack([cos, -sin * shape, zero], 1), torch.stack([sin / shape, cos, zero], 1)], 1)
    grid = functional.affine_grid(turns, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)


def occluded(images: Tensor, side: float, generator: torch.Generator) -> Tensor:
    """A black square, `side` of the image's shorter side wide, at a random place in each."""
    height, width = images.shape[-2:]
    size = max(1, round(side * min(height, width)))
    tops = torch.randint(height - size + 1, (len(images), 1), generator=generator)
    lefts = torch.randint(width - size + 1, (len(images), 1), generator=generator)
    rows, columns = torch.arange(height), torch.arange(width)
    down = (rows >= tops) & (rows < tops + size)
    across = (columns >= lefts) & (columns < lefts + size)
    return images.masked_fill((down[:, :, None] & across[:, None, :])[:, None], 0.0)


def enlarge(images: Tensor, height: int, width: int) -> Tensor:
    """Images (n, 1, h, w) at another size."""
    return functional.interpolate(images, (height, width), mode="bilinear", align_corners=False).clamp_(0, 1)


SHIFTS: dict[str, tuple[Callable[[Tensor, float, torch.Generator], Tensor], tuple[float, ...]]] = {
    "noise": (noisy, (0.1, 0.3)),
    "rotation": (rotated, (10.0, 20.0)),
    "occlusion": (occluded, (0.3, 0.5)),
}
"""Each shift and its levels, from mild to strong."""


def shifted(images: Tensor, name: str, level: float, generator: torch.Generator) -> Tensor:
    """Images under a shift by its name."""
    return SHIFTS[name][0](images, level, generator)
