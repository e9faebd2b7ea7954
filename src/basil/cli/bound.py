"""basil bound: what Byzantine nodes can cost a ring with unlike data.  Needs no PyTorch."""

import argparse
import json
import math
from pathlib import Path
from typing import Any

from basil.errors import UserError
from basil.text import as_text
from basil.theory.robustness import (
    Losses,
    loss_slack,
    own_models_error,
    server_breakdown,
    server_gap,
    worst_error,
)
from basil.theory.worst_case import Row, compared, table


def add_bound(commands: Any) -> None:
    """The options of `basil bound`."""
    bound = commands.add_parser(
        "bound",
        help="what Byzantine nodes can cost a ring with unlike data",
        description="Strongly convex losses: a bound on the error for every number of Byzantine"
        " nodes up to the breakdown point, and what the worst ones reach on quadratic losses.",
    )
    bound.add_argument("--nodes", type=int, default=24, metavar="N")
    bound.add_argument("--byzantine", type=int, metavar="B", help="(default: all, to breakdown)")
    bound.add_argument("--connectivity", type=int, default=4, metavar="S")
    bound.add_argument(
        "--dissimilarity", type=float, default=1.0, metavar="G", help="of the gradients at x*"
    )
    bound.add_argument(
        "--growth", type=float, default=0.0, metavar="B", help="of G with the gradient of f"
    )
    bound.add_argument("--strong", type=float, default=1.0, metavar="MU", help="convexity")
    bound.add_argument("--smooth", type=float, metavar="L", help="(default: as --strong)")
    bound.add_argument(
        "--own-curvature",
        action="store_true",
        help="losses of any shape between MU and L (default: quadratic, with one curvature)",
    )
    bound.add_argument("--rate", type=float, default=0.2, metavar="ETA", help="step size")
    bound.add_argument("--steps", type=int, default=1, help="gradient steps of a turn")
    bound.add_argument(
        "--slack", type=float, default=0.0, metavar="EPS", help="what the choice by loss may miss"
    )
    bound.add_argument("--sigma", type=float, help="of a sample's loss, with --samples, for EPS")
    bound.add_argument("--samples", type=int, metavar="M", help="of the batch that decides")
    bound.add_argument(
        "--failure", type=float, default=1e-6, metavar="P", help="that one batch misses more"
    )
    bound.add_argument("--json", action="store_true")
    bound.add_argument("--plot", metavar="DIR", help="bound and measured error against b")
    bound.set_defaults(command="bound", home="basil.cli.bound")


def bound(args: argparse.Namespace) -> int:
    """basil bound --nodes N --connectivity S …"""
    losses = Losses(
        dissimilarity=args.dissimilarity,
        rate=args.rate,
        strong=args.strong,
        smooth=args.strong if args.smooth is None else args.smooth,
        steps=args.steps,
        slack=_slack(args),
        common_curvature=not args.own_curvature,
    )
    server = server_breakdown(args.growth) * args.nodes
    if args.byzantine is None:
        rows = list(table(args.nodes, args.connectivity, losses))
    elif args.plot:
        raise UserError("--plot draws every number of Byzantine nodes: leave --byzantine out")
    else:
        rows = [compared(args.nodes, args.byzantine, args.connectivity, losses)]
    figures = _figures(args, losses, rows) if args.plot else []
    if args.json:
        print(json.dumps(_plain(args, losses, rows, figures)))
        return 0
    print(as_text(_table(args, losses, rows), names=1))
    print(f"\nwherever they are, if each node hears a benign one: {_number(worst_error(losses))}")
    print(f"one model for all has no bound from b = {math.ceil(server)} on (Allouah et al. 2023)")
    for path in figures:
        print(f"figure  {path}")
    return 0


def _slack(args: argparse.Namespace) -> float:
    if (args.sigma is None) != (args.samples is None):
        raise UserError("--sigma and --samples go together: they give EPS")
    if args.sigma is None:
        return float(args.slack)
    if args.slack:
        raise UserError("--slack and --sigma both say what EPS is: give one of them")
    return loss_slack(args.sigma, args.samples, args.connectivity, args.failure)


def _table(args: argparse.Namespace, losses: Losses, rows: list[Row]) -> list[list[str]]:
    """f − f*: of the mean over the benign nodes at most, and for one model of a server at least."""
    head = ["b", "attacked", "measured", "bound", "ratio", "any ring", "f − f* ≤", "one model ≥"]
    body = [
        [
            f"{row.byzantine}",
            f"{row.attacked}/{row.benign}",
            _number(row.measured),
            _number(row.bound),
            f"{row.ratio:.2f}",
            _number(own_models_error(args.nodes, row.byzantine, losses)),
            _number(losses.gap(row.bound)),
            _number(_server_gap(args, row.byzantine)),
        ]
        for row in rows
    ]
    return [head, *body]


def _server_gap(args: argparse.Namespace, byzantine: int) -> float:
    return server_gap(args.nodes, byzantine, args.dissimilarity, args.strong, args.growth)


def _number(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.3g}"


def _plain(
    args: argparse.Namespace, losses: Losses, rows: list[Row], figures: list[Path]
) -> dict[str, Any]:
    """JSON has no infinity: null."""

    def finite(value: float) -> float | None:
        return None if math.isinf(value) else value

    return {
        "rows": [
            {
                "byzantine": row.byzantine,
                "attacked": row.attacked,
                "benign": row.benign,
                "measured": finite(row.measured),
                "bound": finite(row.bound),
                "ratio": row.ratio,
                "any_ring": own_models_error(args.nodes, row.byzantine, losses),
                "gap_at_most": finite(losses.gap(row.bound)),
                "one_model_gap_at_least": finite(_server_gap(args, row.byzantine)),
            }
            for row in rows
        ],
        "breakdown": rows[-1].byzantine if args.byzantine is None else None,
        "worst_error": finite(worst_error(losses)),
        "server_breakdown": server_breakdown(args.growth) * args.nodes,
        "slack": losses.slack,
        **({"figures": list(map(str, figures))} if figures else {}),
    }


def _figures(args: argparse.Namespace, losses: Losses, rows: list[Row]) -> list[Path]:
    from basil.reporting.bound_figure import write_figure  # matplotlib takes a second to import

    folder = Path(args.plot)
    server = server_breakdown(args.growth) * args.nodes
    lower = [own_models_error(args.nodes, row.byzantine, losses) for row in rows]
    title = f"N = {args.nodes}, S = {args.connectivity}; a turn leaves q = {losses.left:.3g}"
    if losses.stretch > 1:
        title += f", L/μ = {losses.smooth / losses.strong:g}"
    try:
        return write_figure(rows, lower, losses.spread, server, title, folder)
    except OSError as error:
        raise UserError(f"--plot {folder} cannot be written: {error.strerror}") from error
