"""What a selection rule costs: one benign turn of the CIFAR ring with each of them."""

from statistics import median

from rings import noise, ring, seconds_a_turn

from basil import Dataset
from basil.experiment import Setup
from basil.protocol.rules import RULES

TIMES = 3  # each, by turns: a machine is not as fast in every minute


def measure(device: str) -> dict[str, dict[str, dict[str, float]]]:
    """Milliseconds for a turn, and as a multiple of the paper's rule; nobody lies."""
    data = noise(50_000, (3, 32, 32))
    results = {"uncompiled": _measure(device, data, compiled=False)}
    if device == "cuda":
        results["compiled"] = _measure(device, data, compiled=True)
    return results


def _measure(device: str, data: Dataset, compiled: bool) -> dict[str, dict[str, float]]:
    rounds, warm_up = (12, 600) if device == "cuda" else (2, 110)  # after the first
    taken: dict[str, list[float]] = {rule: [] for rule in RULES}
    first: Setup | None = None  # what is compiled for it serves the others
    for _ in range(TIMES):
        for rule, seconds in taken.items():
            experiment = ring(
                byzantine=0,
                rounds=rounds,
                device=device,
                attack="none",
                data=data,
                compiled=compiled,
                reuse=first,
                rule=rule,
            )
            first = first or experiment
            seconds.append(seconds_a_turn([experiment], warm_up)[0])
    paper = median(taken["lowest-loss"])
    return {
        rule: {"ms": 1e3 * median(seconds), "times lowest-loss": median(seconds) / paper}
        for rule, seconds in taken.items()
    }
