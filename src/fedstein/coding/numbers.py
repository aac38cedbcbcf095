"""Whole numbers of any size, in as few bytes as they need."""

from __future__ import annotations

from fedstein.errors import PayloadError

__all__ = ["read_number", "write_number"]


def write_number(number: int) -> bytes:
    """Seven bits a byte, the last byte without its upper bit.

    >>> write_number(5).hex(), write_number(1386).hex()
    ('05', '8a6a')
    """
    pieces = [number & 0x7F]
    while number := number >> 7:
        pieces.append(number & 0x7F | 0x80)
    return bytes(pieces[::-1])


def read_number(content: bytes) -> tuple[int, bytes]:
    """The number again, and what is behind it.

    Raises:
        PayloadError: it is cut short, above 35 bits, or longer than it needs to be.
    """
    number = 0
    for index, byte in enumerate(content[:5]):
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            if index and content[0] == 0x80:
                break
            return number, content[index + 1 :]
    raise PayloadError("A number in the frame is cut short or too long.")
