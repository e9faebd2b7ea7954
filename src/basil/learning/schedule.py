"""Learning rate in round k = 1, 2, …, K."""

import math

from basil.table import Table


def inverse(k: int, rate: float, rounds: int, *, decay: float = 0.03) -> float:
    """rate / (1 + decay·k): the paper's schedule (§VI), with rate = decay = 0.03."""
    return rate / (1 + decay * k)


def constant(k: int, rate: float, rounds: int) -> float:
    """The same rate in every round: what Theorem 2 assumes."""
    return rate


def cosine(k: int, rate: float, rounds: int, *, floor: float = 0.0) -> float:
    """Half a cosine from rate to floor·rate over the run (Loshchilov and Hutter, 2017)."""
    share = (k - 1) / max(1, rounds - 1)
    return rate * (floor + (1 - floor) * (1 + math.cos(math.pi * share)) / 2)


def steps(k: int, rate: float, rounds: int, *, every: int = 100, factor: float = 0.1) -> float:
    """rate·factor^⌊(k−1)/every⌋."""
    return float(rate * factor ** ((k - 1) // every))


SCHEDULES = Table(
    "schedule",
    {"inverse": inverse, "constant": constant, "cosine": cosine, "steps": steps},
    takes=("k", "rate", "rounds"),
)
