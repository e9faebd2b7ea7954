"""Named random streams: every draw says what it is for.

There is no global seed.  `stream(seed, "node", 3, "round", 7, "batch")` is the same sequence of
numbers whichever engine runs node 3, in whatever order, on however many machines; and no draw can
shift another, since two different names share nothing.
"""

import hashlib

import numpy as np
import torch

Name = str | int


def digest(seed: int, *name: Name) -> bytes:
    """SHA-256 of the stream's name.  Types are part of it, so ("1",) and (1,) are two streams."""
    text = "\x1f".join([f"{type(part).__name__}:{part}" for part in (seed, *name)])
    return hashlib.sha256(text.encode()).digest()


def key(seed: int, *name: Name) -> int:
    """A 63-bit integer named like a stream: the seed of somebody else's generator."""
    return int.from_bytes(digest(seed, *name)[:8], "little") >> 1


def stream(seed: int, *name: Name) -> np.random.Generator:
    """numpy's generator for this name, seeded with the digest as one number of 256 bits."""
    entropy = digest(seed, *name)
    # The words of the number, as numpy would cut it up itself in twice the time; it would leave
    # out words of zero at the upper end.
    words = np.frombuffer(entropy, "<u4")
    while words[-1] == 0:
        words = words[:-1]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))


def torch_stream(seed: int, *name: Name, device: torch.device | str = "cpu") -> torch.Generator:
    """torch's generator for this name: for whole model vectors, on the device where they live.

    (A GPU's generator gives other numbers than the CPU's.)
    """
    return torch.Generator(device).manual_seed(key(seed, *name))
