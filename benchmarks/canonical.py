"""What the canonical form adds to a turn of the CIFAR ring: both ways by turns, in one run."""

from typing import Any

from rings import noise, ring, seconds_a_turn


def measure(device: str, repeats: int = 5) -> dict[str, Any]:
    """Milliseconds of a benign turn without and with it, and their ratio.

    Each the fastest of its repeats: other work on the machine only adds.
    """
    rounds, warm_up = (20, 600) if device == "cuda" else (2, 40)
    data, found = noise(10_000, (3, 32, 32)), dict[str, Any]()
    for compiled in (False, True) if device == "cuda" else (False,):
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
                )
                reuse.setdefault(canonical, experiment)
                times[canonical].append(1e3 * seconds_a_turn([experiment], warm_up)[0])
        without, with_it = (min(times[way]) for way in (False, True))
        name = "compiled, " if compiled else ""
        found |= {f"{name}without": without, f"{name}with": with_it}
        found[f"{name}ratio"] = with_it / without
    return found
