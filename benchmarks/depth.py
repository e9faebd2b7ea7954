"""How long a global round takes on the virtual clock: one ring, rings in parallel, rings of rings.

Nothing is computed: only the time that things take counts (Table III, the CIFAR network's size).
"""

from typing import Any

from machinery import Nothing
from rings import noise

from basil.experiment import Custom, Simulation, set_up
from basil.protocol.requests import Record
from basil.recipe import parse
from basil.theory import TABLE_III, basil_plus_path, basil_time_bound

SIZE, CONNECTIVITY = 25, 6
CASES = {"flat": 0, "fanout 8": 8, "fanout 4": 4, "fanout 2": 2}


class Clock:
    """An observer that notes when the last node was done."""

    time = 0.0

    def record(self, node: int, record: Record, now: float) -> None:
        self.time = max(self.time, now)

    def instant(self, simulator: Any) -> bool:
        return True


def measure(groups: tuple[int, ...] = (4, 16, 64, 256)) -> list[dict[str, Any]]:
    """Virtual seconds of the first global round; beside each the formula's bound."""
    found = []
    for G in groups:
        data = noise(SIZE * G, (3, 32, 32))
        row: dict[str, Any] = {"nodes": SIZE * G, "groups": G}
        for name, fanout in CASES.items():
            row[name] = _simulated(G, fanout, data)
            row[f"{name}, bound"] = basil_plus_path(
                TABLE_III,
                117_706,
                nodes=SIZE * G,
                groups=G,
                connectivity=CONNECTIVITY,
                scoring="arrival",
                fanout=fanout,
            )
        row["one ring, bound"] = basil_time_bound(
            TABLE_III, 117_706, nodes=SIZE * G, connectivity=CONNECTIVITY, scoring="arrival"
        )
        found.append(row)
    return found


def _simulated(groups: int, fanout: int, data: Any) -> float:
    recipe = parse(
        {
            "ring": {
                "nodes": SIZE * groups,
                "groups": groups,
                "connectivity": CONNECTIVITY,
                "fanout": fanout,
            },
            "scheme": {"name": "basil+", "rounds": 1},
            "learning": {"model": "cifar-cnn", "batch": 1},
            "time": {"average": 0.0},  # App. E does not count it
        }
    )
    experiment = set_up(recipe, Custom(dataset=data))
    nothing, model = Nothing(experiment.compute), experiment.compute.initial
    nothing.initial = model  # its size counts: it is what travels
    experiment.compute = nothing  # type: ignore[assignment]
    clock = Clock()
    Simulation(experiment).simulator(clock).run()
    return clock.time
