"""How time and memory grow with the number of nodes and with S."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

CASE = """
import json, resource, sys
sys.path.insert(0, {here!r})
import torch
torch.set_num_threads({threads})
from rings import noise, ring, seconds_a_turn
data = noise(max(20_000, {nodes} * 20), (1, 8, 8))
pages = int(open("/proc/self/statm").read().split()[1])
before = pages * resource.getpagesize() / 1024
experiment = ring({nodes}, {nodes} // 3, {connectivity}, batch=20, rounds=3, model="mlp", data=data)
seconds, turns = seconds_a_turn([experiment], {nodes} // 2)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
size = {nodes} * experiment.compute.layout.size * 4
print(json.dumps({{"us_a_turn": seconds * 1e6, "turns": turns,
                  "MiB": (after - before) / 2**10, "models_MiB": size / 2**20}}))
"""


def measure(threads: int = 1) -> list[dict[str, Any]]:
    """Each case in a process of its own, so that its memory is its own."""
    cases = [(n, 10) for n in (100, 1000, 10_000)] + [(1000, s) for s in (2, 5, 20)]
    found = []
    for nodes, connectivity in cases:
        code = CASE.format(
            here=str(Path(__file__).parent),
            nodes=nodes,
            connectivity=connectivity,
            threads=threads,
        )
        answer = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        found.append({"nodes": nodes, "connectivity": connectivity, **json.loads(answer.stdout)})
    return found
