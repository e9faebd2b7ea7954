"""Progress on a terminal; silence elsewhere."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from basil.many.cases import Case
from basil.record.recorder import Progress


def on_terminal() -> bool:
    return sys.stderr.isatty()


@contextmanager
def run_bar(benign_turns: int) -> Iterator[Callable[[Progress], None] | None]:
    """A bar for one run: round, worst accuracy, time left."""
    if not on_terminal():
        yield None
        return
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TextColumn("{task.fields[accuracy]}"),
        bars.TimeElapsedColumn(),
        bars.TextColumn("left"),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=benign_turns, accuracy="")

        def show(at: Progress) -> None:
            accuracy = "" if at.accuracy is None else f"worst benign {at.accuracy:.1%}"
            if at.success is not None:
                accuracy += f", backdoor {at.success:.1%}"
            bar.update(
                task,
                completed=at.turns,
                description=f"round {at.round}/{at.rounds}",
                accuracy=accuracy,
            )

        yield show


@contextmanager
def comparison_bar(cases: Sequence[Case]) -> Iterator[Callable[[Sequence[Case]], None]]:
    """A bar over all rounds of all runs, with those at work named beside it."""
    if not on_terminal():
        yield lambda running: None
        return
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TimeElapsedColumn(),
        bars.TextColumn("left"),
        bars.TimeRemainingColumn(),
    )
    total = sum(case.recipe.scheme.rounds for case in cases)
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=total)

        def watch(running: Sequence[Case]) -> None:
            bar.update(
                task,
                completed=sum(case.rounds_done() for case in cases),
                description=", ".join(case.name for case in running)[:60],
            )

        yield watch
