"""A bar for one run: on a terminal, or in a notebook; silence elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from basil.record.recorder import Progress

Show = Callable[[Progress], None]
TIMES = 23  # columns: "0:00:00 left 0:00:00", and what is between them and the rest
PAUSE = 0.2  # seconds from one picture in a notebook to the next


def on_terminal() -> bool:
    return sys.stderr.isatty()


@contextmanager
def run_bar() -> Iterator[Show | None]:
    """What is to be told of a run's progress; None where nobody would see it."""
    if (display := _notebook()) is not None:
        yield _notebook_bar(display)
    elif on_terminal():
        with _run_bar() as show:
            yield show
    else:
        yield None


@contextmanager
def _run_bar() -> Iterator[Show]:
    """Round, worst accuracy, time left."""
    with terminal_bar("{task.description}", "{task.fields[accuracy]}") as (bar, columns):
        task = bar.add_task("starting", total=None, accuracy="")

        def show(at: Progress) -> None:
            where = _round(at)
            bar.update(
                task,
                completed=at.turns,
                total=at.all_turns,
                description=where[:columns],
                accuracy=_accuracy(at)[: max(0, columns - len(where) - 1)],
            )

        yield show


@contextmanager
def terminal_bar(*texts: str) -> Iterator[tuple[Any, int]]:
    """A bar after the first text and before the others; and how long they may be together.

    Rich would rather shorten the bar to nothing than cut a text.
    """
    from rich import progress as bars
    from rich.console import Console

    console = Console(stderr=True)
    size = min(40, console.width // 5)
    first, *others = (bars.TextColumn(text, markup=False) for text in texts)
    columns = (
        first,
        bars.BarColumn(size),
        *others,
        bars.TimeElapsedColumn(),
        bars.TextColumn("left"),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=console, transient=True) as bar:
        yield bar, max(0, console.width - size - TIMES)


def _notebook() -> Any:
    """IPython's display, where it is that of a notebook."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return ipython.display.display if hasattr(shell, "kernel") else None


def _notebook_bar(display: Any) -> Show:
    """As HTML: rich would need ipywidgets here, which not every notebook has."""
    handle, last = display({"text/plain": "starting"}, raw=True, display_id=True), -PAUSE

    def show(at: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < PAUSE and at.turns < at.all_turns:
            return
        last = now
        text = f"{_round(at)} {_accuracy(at)}".rstrip()
        bar = f'<progress value="{at.turns}" max="{at.all_turns}"></progress>'
        handle.update({"text/plain": text, "text/html": f"{bar} {escape(text)}"}, raw=True)

    return show


def _round(at: Progress) -> str:
    return f"round {at.round}/{at.rounds}"


def _accuracy(at: Progress) -> str:
    said = [] if at.accuracy is None else [f"worst {at.accuracy:.1%}"]
    said += [] if at.success is None else [f"backdoor {at.success:.1%}"]
    return ", ".join(said)
