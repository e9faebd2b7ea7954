"""Samples on the wire, compressed without loss (cf. §VII: "data compression" for data sharing).

A basket is packed as a whole, after it was shuffled, in the smallest of three ways:

0. as it is;
1. deflated;
2. as differences between neighbours along every axis of the image (left, above, channel before),
   modulo 256, deflated with run lengths only.  For photographs, whose channels are much alike.

What the size tells.  It is computed from the rows in their order, and from nothing else: whoever
unpacks a basket could compute it, so it tells a *node* nothing that the samples do not.  Deflate
writes no name, time or machine into its stream.  Somebody who only sees the *links*, which are
encrypted between peers, sees sizes that depend on the content, where uncompressed ones are the same
for all; by comparing what enters a node with what leaves it one could guess how much black was in
its batch.  Sizes are therefore whole blocks: coarser, not equal.  Who must hide from an observer of
the links leaves compression off.

Nothing that arrives is trusted: at most as much is unpacked as the receiver expects, and what is
not exactly a number of whole samples is refused.
"""

import math
import zlib

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.uint8]
BLOCK = 512
AS_IS, DEFLATED, DIFFERENCES = range(3)


class Packing:
    """For samples of one shape: a row is the bytes of x, then those of its label."""

    def __init__(self, shape: tuple[int, ...], label_bytes: int) -> None:
        self.shape = shape
        self.width = math.prod(shape) + label_bytes

    def pack(self, rows: Rows) -> bytes:
        plain = rows.tobytes()
        images, labels = self._parted(rows)
        for axis in range(1, images.ndim):
            first = np.zeros_like(images.take([0], axis))
            images = np.diff(images, axis=axis, prepend=first)
        differences = images.tobytes() + labels.tobytes()
        ways = [
            bytes([AS_IS]) + plain,
            bytes([DEFLATED]) + _deflated(plain, zlib.Z_DEFAULT_STRATEGY),
            bytes([DIFFERENCES]) + _deflated(differences, zlib.Z_RLE),
        ]
        return min(ways, key=len)

    def unpack(self, packed: bytes, most: int) -> Rows:
        """The rows again; ValueError for anything but at most so many whole samples."""
        way, body = packed[:1], packed[1:]
        if way == bytes([AS_IS]):
            plain = body
        elif way in (bytes([DEFLATED]), bytes([DIFFERENCES])):
            plain = _inflated(body, most * self.width)
        else:
            raise ValueError("packed in no known way")
        if len(plain) % self.width or len(plain) > most * self.width:
            raise ValueError(f"{len(plain)} bytes are not 0 to {most} samples of {self.width}")
        count = len(plain) // self.width
        if way != bytes([DIFFERENCES]):
            return np.frombuffer(plain, np.uint8).reshape(count, self.width)
        cut = count * math.prod(self.shape)
        images = np.frombuffer(plain[:cut], np.uint8).reshape(count, *self.shape)
        for axis in range(1, images.ndim):
            images = np.cumsum(images, axis=axis, dtype=np.uint8)
        labels = np.frombuffer(plain[cut:], np.uint8).reshape(count, -1)
        return np.concatenate([images.reshape(count, -1), labels], axis=1)

    def _parted(self, rows: Rows) -> tuple[Rows, Rows]:
        cut = math.prod(self.shape)
        return rows[:, :cut].reshape(len(rows), *self.shape), rows[:, cut:]


def _deflated(plain: bytes, strategy: int) -> bytes:
    """Filled up with zeros to whole blocks, the byte that names the way included."""
    stream = zlib.compressobj(strategy=strategy)
    made = stream.compress(plain) + stream.flush()
    return made + bytes(-(len(made) + 1) % BLOCK)


def _inflated(body: bytes, most: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(body, most + 1)  # one more than allowed, and not a byte further
    except zlib.error as error:
        raise ValueError(f"cannot be unpacked: {error}") from error
    if len(plain) > most or not stream.eof:
        raise ValueError(f"more than {most} bytes, or cut off")
    if len(stream.unused_data) >= BLOCK or any(stream.unused_data):
        raise ValueError("something comes after the samples")
    return plain
