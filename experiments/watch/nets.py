"""A stranger's network: a small CNN over time, with group norm."""

from torch import Tensor, nn


class CNN(nn.Module):
    """Three convolutions over coarser and coarser time; the mean over time; one layer on top."""

    def __init__(self, channels: int, width: int, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *self.layer(channels, width, 9, 4),
            *self.layer(width, 2 * width, 5, 2),
            *self.layer(2 * width, 2 * width, 5, 2),
        )
        self.head = nn.Linear(2 * width, classes)

    @staticmethod
    def layer(inputs: int, outputs: int, size: int, stride: int) -> list[nn.Module]:
        return [nn.Conv1d(inputs, outputs, size, stride=stride), nn.GroupNorm(4, outputs), nn.ReLU()]

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean(-1))


def make_cnn(channels: int = 6, width: int = 16, classes: int = 7) -> nn.Module:
    return CNN(channels, width, classes)
