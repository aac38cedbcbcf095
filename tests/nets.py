"""A stranger's file of networks: tests copy it beside their configs, and know it by name only."""

import torch
from torch import nn


def make_cnn(channels=1, width=4):
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1),
        nn.GroupNorm(2, width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * width, 10),
    )


class Rows(nn.Module):
    def __init__(self, hidden=6):
        super().__init__()
        self.gru = nn.GRU(8, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 10)

    def forward(self, x):
        return self.head(self.gru(x[:, 0])[0][:, -1])


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU())
        self.head = nn.Linear(12, 10)

    def forward(self, x):
        return self.head(self.body(x))


def make_regressor(width=8):
    return nn.Sequential(nn.Linear(3, width), nn.GELU(), nn.Linear(width, 1))


def make_deep_regressor(outputs=1):
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, outputs), nn.Identity())


class Odd(nn.Module):
    """Returns what a test asks for."""

    def __init__(self, returns):
        super().__init__()
        self.body, self.returns = nn.Linear(64, 10), returns

    def forward(self, x):
        y = self.body(x.flatten(1))
        return {"one": y.mean(1), "few": y[:, :3], "two": (y, x), "other": {"a": y, "b": y}, "nan": y * torch.nan}[
            self.returns
        ]


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)

    def forward(self, x, z):
        return self.body(x.flatten(1)) + z


class Words(nn.Module):
    """Of token ids below 30."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(30, 5)
        self.head = nn.Linear(5, 3)

    def forward(self, ids):
        return self.head(self.embedding(ids).mean(1))


def make_other():
    """What no node lets a server use."""
    return make_cnn(width=2)


class Hashed(nn.Module):
    """Looks two ids up, however large they are: as int64 alone, in whatever they come, or beside a number."""

    def __init__(self, how="ids"):
        super().__init__()
        self.how = how
        self.embed, self.head = nn.Embedding(97, 4), nn.Linear(9 if how == "mixed" else 8, 2)

    def forward(self, x):
        ids = x[:, :2] if self.how == "ids" else x[:, :2].long()
        looked_up = self.embed(ids % 97).flatten(1)
        return self.head(torch.cat([looked_up, x[:, 2:] * torch.ones(1)], 1) if self.how == "mixed" else looked_up)
