"""What the canonical form adds to a turn: both ways by turns, in one run."""

from typing import Any

from rings import noise, ring, seconds_a_turn

CIFAR = "CIFAR"
DEMO = "demo's MLP"  # where calls take the time, not arithmetic
SHAPES = {CIFAR: (3, 32, 32), DEMO: (1, 8, 8)}
RINGS: dict[str, dict[str, Any]] = {
    CIFAR: {},
    DEMO: {"nodes": 20, "connectivity": 7, "model": "mlp", "batch": 32},
}


def measure(device: str, repeats: int = 5) -> dict[str, Any]:
    """Milliseconds of a benign turn without and with it, and their ratio.

    Each the fastest of its repeats: other work on the machine only adds.
    """
    if device == "cuda":
        ways = [(CIFAR, False, 20, 600), (CIFAR, True, 20, 600)]
    else:
        ways = [(CIFAR, False, 2, 40), (DEMO, False, 20, 100)]
    found = dict[str, Any]()
    for network, compiled, rounds, warm_up in ways:
        data = noise(10_000, SHAPES[network])
        times: dict[bool, list[float]] = {False: [], True: []}
        reuse: dict[bool, Any] = {}
        for _ in range(repeats):
            for canonical in (False, True):
                experiment = ring(
                    byzantine=0,
                    rounds=rounds,
                    device=device,
                    attack="none",
                    data=data,
                    compiled=compiled,
                    reuse=reuse.get(canonical),
                    canonical=canonical,
                    **RINGS[network],
                )
                reuse.setdefault(canonical, experiment)
                times[canonical].append(1e3 * seconds_a_turn([experiment], warm_up)[0])
        without, with_it = (min(times[way]) for way in (False, True))
        name = f"{network}, compiled" if compiled else network
        found[name] = {"without": without, "with": with_it, "ratio": with_it / without}
    return found
