"""Progress of many runs on a terminal; silence elsewhere."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from basil.many.cases import Case
from basil.record.progress_bar import on_terminal


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
