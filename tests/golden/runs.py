"""Small runs of every scheme, rule and family of attacks, and the digest of what each computes.

    python tests/golden/runs.py             # print the digests
    python tests/golden/runs.py --write     # keep them: the results of runs are meant to change

Through the public API alone, so that it outlives any redesign.  The instruction sets that
libraries choose among are fixed, so that all x86 processors agree.  A run without a digest there
has changed since, and waits for `--write` on an x86: no digest is better than one that nobody has
seen come out of such a processor.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

FIXED = {
    "ATEN_CPU_CAPABILITY": "default",
    "DNNL_MAX_CPU_ISA": "SSE41",
    "MKL_CBWR": "COMPATIBLE",
    "OMP_NUM_THREADS": "1",
}
KEPT = Path(__file__).with_name("digests.json")

BASE: dict[str, Any] = {
    "seed": 3,
    "ring": {"nodes": 9, "byzantine": 2, "connectivity": 4},
    "scheme": {"rounds": 5},
    "learning": {"batch": 16},
    "record": {"every": 5, "test_samples": 60},
}
GRAPH = {"graph": {"name": "complete"}}
ATTACKS = (
    "gaussian",
    "hidden",
    "alie",
    "dissensus",
    "inverse",
    "stale",
    "label-flip",
    "silent",
    "ballast",
    "mimic",
)

RUNS: dict[str, dict[str, Any]] = {
    "basil": {},
    "basil-published": {"scheme": {"name": "basil-published"}},
    "local": {"scheme": {"name": "local"}},
    "centralised": {"scheme": {"name": "centralised"}},
    **{
        name: {"scheme": {"name": name}, "attack": {"name": "gaussian"}, **GRAPH}
        for name in ("g-plain", "ubar", "bridge", "clipped-gossip", "nna", "balance")
    },
    # A ring that takes what comes: each attack leaves its trace.
    **{f"under {a}": {"scheme": {"name": "r-plain"}, "attack": {"name": a}} for a in ATTACKS},
    **{
        f"trust under {name}": {"scheme": {"rule": "trust"}, "attack": {"name": name}}
        for name in ("rescale", "twins", "stall")
    },
    "freshest": {"scheme": {"rule": "freshest"}, "attack": {"name": "drift"}},
    "epochs, scored at the turn": {
        "learning": {"local_epochs": 1, "model": "gelu"},
        "scheme": {"scoring": "turn"},
        "attack": {"name": "layer-sign-flip"},
    },
    "nodes leave and return": {
        "ring": {"dropouts": 1, "events": [{"node": 2, "leaves": 2, "returns": 4}]}
    },
    "basil+": {
        "ring": {"nodes": 16, "connectivity": 3, "groups": 4, "group_rounds": 2},
        "scheme": {"name": "basil+"},
        "attack": {"name": "permute"},
    },
    "basil+, a node leaves": {
        "ring": {
            "nodes": 20, "groups": 4, "fanout": 2,
            "events": [{"node": 2, "leaves": 2, "returns": 4}],
        },
        "scheme": {"name": "basil+"},
    },
    "r-plain+": {"ring": {"nodes": 15, "groups": 3}, "scheme": {"name": "r-plain+"}},
    "sharing": {
        "data": {"partition": "sorted"},
        "sharing": {"alpha": 0.1, "batches": 2, "opening": True},
    },
    "sharing under a fault": {
        "data": {"partition": "sorted"},
        "sharing": {"alpha": 0.1, "batches": 2, "groups": 3, "fault": "garbage"},
        "attack": {"name": "gaussian"},
    },
    "stopped and resumed": {
        "ring": {"byzantine": 3},
        "attack": {"name": "mimic"},
        "record": {"every": 2, "checkpoint": 0.0},
    },
}  # fmt: skip


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    both = {**base, **changes}
    return {k: {**base.get(k, {}), **v} if isinstance(v, dict) else v for k, v in both.items()}


class Stop:
    """A callback that ends a run in the middle."""

    def begin(self, *_: Any) -> None: ...

    def end(self, *_: Any) -> None: ...

    def measured(self, metrics: dict[str, Any]) -> None:
        if metrics["round"] >= 4:
            raise KeyboardInterrupt


def digest(name: str, folder: Path) -> str:
    import basil

    recipe = merged(BASE, RUNS[name])
    if "resumed" not in name:
        result = basil.run(recipe, out=folder, device="cpu")
    else:
        try:
            basil.run(recipe, out=folder, device="cpu", callbacks=[Stop()])
        except KeyboardInterrupt:
            result = basil.resume(folder, device="cpu")
    return str(result.summary["model_sha256"])


def main() -> None:
    if any(os.environ.get(key) != value for key, value in FIXED.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **FIXED})
    import warnings

    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        found = {name: digest(name, Path(folder) / str(i)) for i, name in enumerate(RUNS)}
    text = json.dumps(found, indent=1) + "\n"
    if "--write" in sys.argv:
        KEPT.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
