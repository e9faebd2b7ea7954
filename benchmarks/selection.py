"""What a selection rule costs: one benign turn of the CIFAR ring with each of them."""

from rings import noise, ring, seconds_a_turn

from basil.protocol.rules import RULES


def measure(device: str) -> dict[str, dict[str, float]]:
    """Milliseconds for a turn, and as a multiple of the paper's rule; nobody lies."""
    data = noise(50_000, (3, 32, 32))
    rounds, warm_up = (12, 600) if device == "cuda" else (3, 100)
    found: dict[str, dict[str, float]] = {}
    for rule in RULES:
        experiment = ring(
            byzantine=0, rounds=rounds, device=device, attack="none", data=data, rule=rule
        )
        seconds, _ = seconds_a_turn([experiment], warm_up)
        found[rule] = {"ms": 1e3 * seconds}
    for each in found.values():
        each["times lowest-loss"] = each["ms"] / found["lowest-loss"]["ms"]
    return found
