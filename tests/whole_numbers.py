"""Probabilities of failure as fractions, by whole-number arithmetic: a slow twin for tests."""

import math
from fractions import Fraction


def failure_fraction(nodes: int, byzantine: int, connectivity: int) -> Fraction:
    """P(S Byzantine nodes come in a row on the ring)."""
    safe = safe_arrangements(nodes, byzantine, connectivity)
    return 1 - Fraction(safe, math.comb(nodes, byzantine))


def group_failure_fraction(nodes: int, byzantine: int, groups: int, connectivity: int) -> Fraction:
    """P(some of G equal groups has S Byzantine nodes in a row on its own ring).

    The safe placements of b Byzantine nodes are the coefficient of x^b in (Σ_i a_i x^i)^G, with a_i
    the safe placements of i in one group.
    """
    # The polynomial is evaluated at x = 2^width, too large for coefficients (< 2^N) to overlap.
    size, width = nodes // groups, nodes + 1
    one_group = sum(
        safe_arrangements(size, inside, connectivity) << (inside * width)
        for inside in range(min(byzantine, size) + 1)
    )
    safe = (one_group**groups >> (byzantine * width)) & ((1 << width) - 1)
    return 1 - Fraction(safe, math.comb(nodes, byzantine))


def safe_arrangements(nodes: int, byzantine: int, connectivity: int) -> int:
    """How many of the C(N, b) rings have no S Byzantine nodes in a row (none if b = N)."""
    benign = nodes - byzantine
    if connectivity == 0 or benign == 0:
        return 0
    compositions = sum(
        (1 - 2 * (j % 2))
        * math.comb(benign, j)
        * math.comb(nodes - 1 - j * connectivity, benign - 1)
        for j in range(min(benign, byzantine // connectivity) + 1)
    )
    return nodes * compositions // benign  # each ring is cut at any of its z benign nodes
