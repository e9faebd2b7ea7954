"""Print what simulator and peers cost on this machine, as ratios measured in one run.

python benchmarks/run.py [machinery] [turn] [rings] [phase] [scale] [groups] [depth] [rules]
                         [canonical] [subnormal] [llm] [hop] [watching]
                         [--device cpu|cuda] [--threads N] [--json FILE]
                         [--plan 8x8] [--rule trust] [--attack gaussian] [--steps 7]
"""

import argparse
import json
import platform
from pathlib import Path
from typing import Any

import canonical
import concurrent_rings
import depth
import groups
import machinery
import phase
import scale
import selection
import subnormal
import torch
import turn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", default=["machinery", "turn", "phase", "scale"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plan", help="of rings: processes x rings in each, such as 8x8")
    parser.add_argument("--rule", default="lowest-loss", help="of rings: whose model to go on from")
    parser.add_argument("--attack", default="none", help="of rings: by 33 of the 100 nodes")
    parser.add_argument("--steps", type=int, default=1, help="of rings: in a turn")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    gpu = torch.cuda.get_device_name() if args.device == "cuda" else ""
    results: dict[str, Any] = {
        "machine": f"{platform.machine()} {gpu}".strip(),
        "threads": args.threads,
        "torch": torch.__version__,
    }
    if "machinery" in args.what:
        results["machinery_us"] = machinery.measure()
    if "turn" in args.what:
        results["turn_ms"] = turn.measure(args.device)
    if "rings" in args.what:
        results["rings"] = concurrent_rings.measure(
            args.device, args.plan, args.rule, args.attack, args.steps
        )
    if "phase" in args.what:
        results["phase_ms"] = phase.measure(args.device)
    if "scale" in args.what:
        results["scale"] = scale.measure()
    if "groups" in args.what:
        results["groups"] = groups.measure(args.device, args.threads)
    if "depth" in args.what:
        results["depth_virtual_s"] = depth.measure()
    if "rules" in args.what:
        results["rules"] = selection.measure(args.device)
    if "canonical" in args.what:
        results["canonical_ms"] = canonical.measure(args.device)
    if "subnormal" in args.what:
        results["subnormal_ms"] = subnormal.measure()
    if "llm" in args.what:
        import llm  # needs the extra basil-fl[llm]

        results["llm"] = llm.measure(args.device)
    if "hop" in args.what:
        import hop  # needs what peers need, which a machine that only computes may not have

        results["hop"] = hop.measure()
    if "watching" in args.what:
        import watching  # needs the extra basil-fl[watch]

        results["watching"] = watching.measure()
    print(json.dumps(results, indent=1))
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
