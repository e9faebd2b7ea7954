"""Numbers below 1.2e-38, which a CPU computes with some twenty times as slowly as with others."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

SMALL = 1e-20  # its square is subnormal in single precision


@contextmanager
def no_subnormals() -> Iterator[None]:
    """They count as 0, in this thread and in those that it starts.

    Weights become that small if somebody shrinks them turn by turn.  Who sends such models would
    slow down everybody who looks at them.
    """
    before = _count_as_zero()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _count_as_zero() -> bool:
    return not torch.tensor(SMALL).square().view(torch.int32)
