"""Numbers below 1.2e-38, with which a CPU computes many times as slowly as with others."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

SMALL = 1e-20  # its square is subnormal in single precision


@contextmanager
def no_subnormals() -> Iterator[None]:
    """They count as 0, in this thread and in those that it starts.

    A Byzantine node that shrinks weights turn by turn, or sends such ones at once, would slow down
    everybody who evaluates its models (docs/contribute/performance.md).  PyTorch's own threads
    start with the first large operation, so a program enters this before it.
    """
    before = _count_as_zero()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _count_as_zero() -> bool:
    return not torch.tensor(SMALL).square().view(torch.int32)
