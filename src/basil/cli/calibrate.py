"""basil calibrate: Table III on this machine."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from basil.errors import UserError
from basil.text import aligned, width
from basil.theory import TABLE_III, TABLE_III_UBAR_SCORED


def add_calibrate(commands: Any) -> None:
    """The options of `basil calibrate`."""
    calibrate = commands.add_parser(
        "calibrate",
        help="measure the parts of a turn on this machine, for basil plan --times",
        description="Measures evaluation, SGD step, distances, averaging, hashing and serialising"
        " of one model, and prints Table III for this machine. The rate of a link is not measured:"
        " that takes two machines; give it to basil plan with"
        " --bandwidth.",
    )
    calibrate.add_argument("--model", default="cifar-cnn", help="cifar-cnn (default) or mlp")
    calibrate.add_argument("--batch", type=int, default=80, metavar="SIZE")
    calibrate.add_argument("--connectivity", type=int, default=10, metavar="S")
    calibrate.add_argument("--device", default="auto", help="auto, cpu or cuda (default auto)")
    calibrate.add_argument("--threads", type=int, default=1, help="CPU threads (default 1)")
    calibrate.add_argument("--json", action="store_true")
    calibrate.add_argument("--save", metavar="FILE", help="for basil plan --times FILE")
    calibrate.set_defaults(command="calibrate", home="basil.cli.calibrate")


def calibrate(args: argparse.Namespace) -> int:
    """basil calibrate [--model …] [--save FILE]"""
    import torch  # here, so that --help does not wait for it

    from basil.experiment.calibrate import Calibration
    from basil.experiment.calibrate import calibrate as measure
    from basil.record.disk import writing
    from basil.record.run_folder import write_json

    if args.threads < 1:
        raise UserError(f"--threads {args.threads}: it must be 1 or more")
    torch.set_num_threads(args.threads)
    found: Calibration = measure(args.model, args.batch, args.connectivity, args.device)
    if args.save:
        with writing(Path(args.save)):
            write_json(Path(args.save), asdict(found))
    if args.json:
        print(json.dumps(asdict(found)))
        return 0
    print(
        f"{found.model}, {found.parameters:,} parameters, batch {found.batch}, "
        f"S = {found.connectivity}, {found.device}, threads: {found.threads}\n"
    )
    print(_table_3(asdict(found), found.times.scored(found.connectivity)))
    print(
        f"\none evaluation  {found.forward * 1e3:.3f} ms\nSHA-256         {found.hash * 1e3:.3f} ms"
        f"\nserialise       {found.serialise * 1e3:.3f} ms (safetensors)"
        f"\ndeserialise     {found.deserialise * 1e3:.3f} ms"
    )
    if args.save:
        print(f"\nplan with it    basil plan --nodes 100 --byzantine 33 --times {args.save}")
    return 0


def _table_3(found: dict[str, Any], scored: float) -> str:
    """Seconds of a node's turn, stage by stage, beside the paper's (S = 10 there)."""
    S, step = found["connectivity"], found["step"]
    ours = {
        "Basil": (S * found["forward"], None, None, step),
        "UBAR": (scored * found["forward"], S * found["distance"], found["average"], step),
    }
    table, ten = TABLE_III, 10 * TABLE_III.forward
    paper = {
        "Basil": (ten, None, None, table.step),
        "UBAR": (
            TABLE_III_UBAR_SCORED * table.forward,
            table.distance,
            table.aggregate,
            table.step,
        ),
    }
    head = ("seconds", "performance", "distance", "aggregate", "SGD step", "total")
    rows: list[tuple[str, ...]] = [head]
    for name in ours:
        for label, parts in ((f"{name}, here", ours[name]), (f"{name}, Table III", paper[name])):
            digits = 5 if parts is ours[name] else 3
            cells = ["–" if part is None else f"{part:.{digits}f}" for part in parts]
            total = sum(part for part in parts if part is not None)
            rows.append((label, *cells, f"{total:.{digits}f}"))
    return "\n".join(aligned(rows, width(), right=range(1, len(head))))
