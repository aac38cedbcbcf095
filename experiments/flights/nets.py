"""A stranger's network: an aeroplane arrives as late as it left, but for what a small MLP says."""

import torch
from torch import Tensor, nn


class Delay(nn.Module):
    """Two outputs: the delay and its noise, both in standard numbers. The first input is the delay at the start."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2)
        )

    def forward(self, x: Tensor) -> Tensor:
        said = self.body(x)
        return torch.cat([said[..., :1] + x[..., :1], said[..., 1:]], -1)


def make_mlp(inputs: int = 22, width: int = 24) -> nn.Module:
    return Delay(inputs, width)
