"""A bar for one run: on a terminal, or in a notebook; silence elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from basil.record.recorder import Progress

Show = Callable[[Progress], None]
PAUSE = 0.2  # seconds from one picture in a notebook to the next


def on_terminal() -> bool:
    return sys.stderr.isatty()


@contextmanager
def run_bar() -> Iterator[Show | None]:
    """What is to be told of a run's progress; None where nobody would see it."""
    if (display := _notebook()) is not None:
        yield _notebook_bar(display)
    elif on_terminal():
        with _terminal_bar() as show:
            yield show
    else:
        yield None


@contextmanager
def _terminal_bar() -> Iterator[Show]:
    """Round, worst accuracy, time left."""
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
        task = bar.add_task("starting", total=None, accuracy="")

        def show(at: Progress) -> None:
            bar.update(
                task,
                completed=at.turns,
                total=at.all_turns,
                description=_round(at),
                accuracy=_accuracy(at),
            )

        yield show


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
    accuracy = "" if at.accuracy is None else f"worst benign {at.accuracy:.1%}"
    return accuracy if at.success is None else f"{accuracy}, backdoor {at.success:.1%}"
