"""Progress of many runs on a terminal; silence elsewhere."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from basil.many.cases import Case
from basil.record.progress_bar import on_terminal, terminal_bar


@contextmanager
def comparison_bar(cases: Sequence[Case]) -> Iterator[Callable[[Sequence[Case]], None]]:
    """A bar over all rounds of all runs, with those at work named beside it."""
    if not on_terminal():
        yield lambda running: None
        return
    total = sum(case.recipe.scheme.rounds for case in cases)
    with terminal_bar("{task.description}") as (bar, columns):
        task = bar.add_task("starting", total=total)

        def watch(running: Sequence[Case]) -> None:
            bar.update(
                task,
                completed=sum(case.rounds_done() for case in cases),
                description=", ".join(case.name for case in running)[:columns],
            )

        yield watch
