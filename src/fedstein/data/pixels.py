"""Images of pillow as bytes: what more than eight bits mean is said, never clipped away."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedstein.errors import UserError

__all__ = ["eight_bits"]

_SIXTEEN = 2**16 - 1


def eight_bits(image: Any, what: str) -> Any:
    """The same image with a byte for each colour of a pixel.

    Args:
        image: of pillow.
        what: its name in messages.

    Raises:
        UserError: its numbers have no range that one could know.
    """
    if not image.mode.startswith(("I", "F")):
        return image
    numbers = np.asarray(image)
    if image.mode == "F" or int(numbers.min()) < 0 or int(numbers.max()) > _SIXTEEN:
        raise UserError(
            f"{what} is an image of numbers (mode {image.mode}) whose range nobody knows. Save it with 8 or 16 bits, "
            "or give arrays instead."
        )
    from PIL import Image

    return Image.fromarray((numbers.astype(np.uint32) >> 8).astype(np.uint8))
