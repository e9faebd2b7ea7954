"""Options that several commands share."""

import argparse

TENSORBOARD = "basil.record.tensorboard:TensorBoard"


def add_set(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "-s",
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="change one value of the recipe (may be repeated)",
    )


def add_shared(command: argparse.ArgumentParser) -> None:
    """What to change in the recipe, where to compute, what to write."""
    add_set(command)
    command.add_argument("--out", metavar="DIR", help="run folder (default: under runs/)")
    command.add_argument("--device", default="auto", help="auto, cpu or cuda (default auto)")
    command.add_argument(
        "--deterministic",
        action="store_true",
        help="on a GPU: the same bits every time, at some cost (a CPU thread always does that)",
    )
    command.add_argument(
        "--compile",
        action=argparse.BooleanOptionalAction,
        help="on a GPU: compile the network (default: where a run is long enough for it to pay)",
    )
    command.add_argument(
        "--tensorboard", action="store_true", help="write each run for TensorBoard as well"
    )
    command.add_argument(
        "--log",
        action="append",
        default=[],
        metavar="MODULE:NAME",
        help="a callback of your own that hears of each run (may be repeated)",
    )
    command.add_argument("--json", action="store_true", help="print the result as JSON")


def add_jobs(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--jobs",
        type=whole,
        default=0,
        help="processes (default: one a core; on a GPU two; with MPS one a core, but for two)",
    )


def logs(args: argparse.Namespace) -> tuple[str, ...]:
    """The callbacks that were asked for, by name."""
    return (*args.log, *([TENSORBOARD] if args.tensorboard else []))


def whole(text: str) -> int:
    """For argparse: a whole number, 0 or more."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text}: it must be a whole number, 0 or more")
    return number
