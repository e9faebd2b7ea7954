"""basil plan: what a ring needs, and what it will cost.  Needs no PyTorch."""

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from basil.errors import UserError
from basil.text import aligned, duration, width
from basil.theory import Estimate, Risk
from basil.theory.planner import Plan, make_plan
from basil.theory.setting import PAPER_TIMES, PartTimes, Setting, Sharing

PARAMETERS = {"cifar-cnn": 117_706, "mlp": 89_610}  # the paper's networks (Tables I, II)
DEFAULT_MODEL = "cifar-cnn"
Rows = list[tuple[str, str, str]]


def add_plan(commands: Any) -> None:
    """The options of `basil plan`."""
    plan = commands.add_parser(
        "plan",
        help="how safe a ring is, and what it costs in messages and time",
        description="The smallest S for a wanted probability of failure, or the probability for a"
        " given S; messages, storage, evaluations; time of Basil, Basil+ and UBAR; cost of ACDS.",
    )
    plan.add_argument("--nodes", type=int, required=True, metavar="N")
    plan.add_argument("--byzantine", type=int, required=True, metavar="B")
    wish = plan.add_mutually_exclusive_group()
    wish.add_argument("--connectivity", type=int, metavar="S", help="predecessors listened to")
    wish.add_argument("--failure", type=float, metavar="P", help="wanted at most (default 1e-6)")
    plan.add_argument("--groups", type=int, metavar="G", help="rings in parallel (Basil+, ACDS)")
    plan.add_argument("--dropouts", type=int, default=0, metavar="D", help="away at once (App. C)")
    plan.add_argument(
        "--worst-case", action="store_true", help="an adversary places the nodes: S = b + 1"
    )
    plan.add_argument("--bandwidth", type=float, default=100.0, metavar="MBIT", help="per second")
    plan.add_argument(
        "--model", metavar="NAME|D", help="cifar-cnn (default), mlp, or a number of parameters"
    )
    plan.add_argument("--times", metavar="FILE", help="of basil calibrate (default: Table III)")
    plan.add_argument("--rounds", type=int, default=500, metavar="K")
    plan.add_argument("--ring-rounds", type=int, default=1, metavar="TAU", help="in a global round")
    shared = Sharing()
    plan.add_argument("--share", type=float, default=shared.share, help="of the data, by ACDS")
    plan.add_argument("--local-samples", type=int, default=shared.local_samples, metavar="D")
    plan.add_argument("--sample-kbits", type=float, default=shared.sample_kilobits, metavar="I")
    plan.add_argument("--batches", type=int, default=shared.batches, metavar="H")
    plan.add_argument("--simulate", type=int, default=0, metavar="TRIALS", help="random rings, too")
    plan.add_argument("--seed", type=int, default=0, help="of the simulation")
    plan.add_argument("--json", action="store_true")
    plan.add_argument("--plot", metavar="DIR", help="failure against S, time against G")
    plan.set_defaults(command="plan", home="basil.cli.plan")


def plan(args: argparse.Namespace) -> int:
    """basil plan --nodes N --byzantine B …"""
    made = make_plan(_setting(args))
    figures = _figures(made, Path(args.plot)) if args.plot else []
    if args.json:
        best = made.best
        answer = {**_plain(made), "best": best.groups if best else None}
        print(json.dumps({**answer, "figures": list(map(str, figures))} if figures else answer))
        return 0
    print(f"{args.nodes:,} nodes, {args.byzantine:,} Byzantine")
    print("\n".join(aligned(rows_of(made), width(), right=[1])))
    for path in figures:
        print(f"figure  {path}")
    return 0


def _plain(made: Plan) -> dict[str, Any]:
    """Names for everything: JSON would make lists of named tuples."""
    answer = asdict(made)
    for part, whole in ((answer["ring"], made.ring), (answer["grouped"], made.grouped)):
        if whole is not None and whole.risk.simulated is not None:
            part["risk"]["simulated"] = whole.risk.simulated._asdict()
    if made.grouped is not None:
        answer["grouped"]["stages"] = made.grouped.stages._asdict()
    return answer


def _setting(args: argparse.Namespace) -> Setting:
    times, parameters = PAPER_TIMES, PARAMETERS[DEFAULT_MODEL]
    if args.times:
        times, measured = read_times(Path(args.times))
        parameters = measured or parameters
    if args.model:
        parameters = _parameters(args.model)
    return Setting(
        nodes=args.nodes,
        byzantine=args.byzantine,
        connectivity=args.connectivity,
        failure=args.failure,
        groups=args.groups,
        dropouts=args.dropouts,
        worst_case=args.worst_case,
        parameters=parameters,
        megabits_per_second=args.bandwidth,
        rounds=args.rounds,
        ring_rounds=args.ring_rounds,
        times=times,
        sharing=Sharing(args.share, args.local_samples, args.sample_kbits, args.batches),
        trials=args.simulate,
        seed=args.seed,
    )


def _parameters(model: str) -> int:
    if model in PARAMETERS:
        return PARAMETERS[model]
    try:
        return int(model)
    except ValueError:
        raise UserError(
            f"--model {model}: it must be {', '.join(PARAMETERS)} or a number of parameters"
        ) from None


def read_times(path: Path) -> tuple[PartTimes, int | None]:
    """What `basil calibrate --save` wrote: seconds, and the model's number of parameters."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"--times {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"--times {path} is no JSON file: {error}") from error
    if not isinstance(found, Mapping):
        raise UserError(f"--times {path}: it must hold forward, step, … by name")
    seconds = {key: found.get(key, 0.0) for key in ("forward", "step", "distance", "average")}
    for key, value in seconds.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UserError(f"--times {path}: {key} = {value!r} is no number of seconds")
        if key in ("forward", "step") and key not in found:
            raise UserError(f"--times {path}: {key} is missing; basil calibrate --save writes it")
    parameters = found.get("parameters")
    return PartTimes(**seconds), parameters if isinstance(parameters, int) else None


def rows_of(plan: Plan) -> Rows:
    """Name, value, and where it comes from; an empty name begins a new part."""
    asked, ring, cost = plan.setting, plan.ring, plan.ring.round
    model = 4 * asked.parameters
    rounds = _rounds(asked.rounds * asked.ring_rounds)
    chosen = ""
    if asked.worst_case:
        chosen = "b + 1: any placement"
    elif ring.by_bound is not None:
        chosen = f"smallest for {asked.wanted:g}; by the bound: {ring.by_bound}"
    rows = [
        ("connectivity S", f"{ring.connectivity}", chosen),
        *_risk_rows(ring.risk, "Prop. 2"),
        ("", "", ""),
        ("sent by a node in a round", _bytes(cost.bytes_sent), f"{cost.messages_sent} models"),
        ("received", _bytes(cost.bytes_received), f"{cost.messages_received} models"),
        ("stored", _bytes(cost.bytes_stored), f"{cost.models_stored} models of {_bytes(model)}"),
        ("evaluated", f"{cost.evaluations}", "models (Prop. 1)"),
        ("", "", ""),
        ("a model on a link", duration(plan.link), f"{asked.megabits_per_second:g} Mb/s"),
        (f"Basil, {rounds}", duration(plan.turn.bound), "(15)"),
        ("  scored on arrival", duration(plan.arrival.bound), ""),
        (
            f"UBAR, {rounds}",
            duration(plan.ubar.total),
            f"{plan.ubar.neighbours} neighbours (App. G-B)",
        ),
    ]
    if plan.grouped is not None:
        rows += _group_rows(plan)
    if plan.acds is not None:
        of = f"{plan.acds.of_training:.1%} of what training multicasts"
        rows += [
            ("", "", ""),
            ("ACDS, groups", f"{plan.acds.groups}", "section sharing of a recipe"),
            ("  sent and received", _bits(plan.acds.bits), f"Prop. 3, (8); {of}"),
            ("  time", duration(plan.acds.seconds), "(9)"),
        ]
    return rows + _choice_rows(plan)


def _group_rows(plan: Plan) -> Rows:
    group = plan.grouped
    assert group is not None
    where = f"{group.groups} groups of {group.size}, S = {group.connectivity}"
    stages = group.stages
    return [
        ("", "", ""),
        (f"Basil+, {_rounds(plan.setting.rounds)}", duration(group.turn), where),
        ("  scored on arrival", duration(group.arrival), ""),
        ("  (16) as printed", duration(group.printed), "forgets G messages a round"),
        ("  training, one round", duration(stages.training), "App. E"),
        ("  circular aggregation", duration(stages.aggregation), ""),
        ("  multicast", duration(stages.multicast), ""),
        *_risk_rows(group.risk, "Prop. 5"),
    ]


def _choice_rows(plan: Plan) -> Rows:
    best = plan.best
    if best is None:
        return []
    rows = [("", "", ""), ("groups for the least time", f"{best.groups}", "Basil where it is 1")]
    nearest = sorted(plan.choices, key=lambda choice: choice.turn)[:5]
    for choice in sorted(nearest, key=lambda choice: choice.groups):
        says = f"n = {choice.size}, S = {choice.connectivity}, fails {_chance(choice.exact)}"
        rows.append((f"  G = {choice.groups}", duration(choice.turn), says))
    return rows


def _risk_rows(risk: Risk, source: str) -> Rows:
    rows = [
        ("failure, exactly", _chance(risk.exact), ""),
        ("  union bound", _chance(risk.bound), source + (": says nothing" * (risk.bound >= 1))),
    ]
    if risk.union is not None:
        rows.append(("  G × one group's", _chance(risk.union), "§V-C, (17)"))
    if risk.simulated is not None:
        rows.append(("  simulated", _chance(risk.simulated.estimate), _interval(risk.simulated)))
    if risk.away is not None:
        rows.append(("  while D benign are away", _chance(risk.away), "exactly, N − D nodes"))
    return rows


def _interval(simulated: Estimate) -> str:
    return f"95 %: {_chance(simulated.low)} to {_chance(simulated.high)}"


def _chance(probability: float) -> str:
    if 0.999 < probability < 1:
        return f"1 − {1 - probability:.2g}"
    return f"{probability:.3g}"


def _rounds(count: int) -> str:
    return f"{count:,} round{'s' * (count > 1)}"


def _bits(count: float) -> str:
    return f"{count / 1e9:,.0f} Gbit" if count >= 1e11 else f"{count / 1e6:,.1f} Mbit"


def _bytes(count: int) -> str:
    return f"{count / 1e6:,.2f} MB"


def _figures(plan: Plan, folder: Path) -> list[Path]:
    from basil.reporting.plan_figures import write_figures  # matplotlib takes a second to import

    try:
        return write_figures(plan, folder)
    except OSError as error:
        raise UserError(f"--plot {folder} cannot be written: {error.strerror}") from error
