"""A run for somebody who looks on: with a bar, and a stop that loses nothing."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

from basil.experiment.simulation import Interrupted
from basil.record.callback import Callback
from basil.record.progress_bar import run_bar
from basil.record.recorder import Hooks


@contextmanager
def stopped_by(*signals: signal.Signals) -> Iterator[Callable[[], bool]]:
    """A signal asks for a stop at the next turn, with a checkpoint; a second one insists.

    Only the main thread hears signals; elsewhere nobody asks.
    """
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    if threading.current_thread() is not threading.main_thread():
        signals = ()
    before = {number: signal.signal(number, ask) for number in signals}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def run_in_foreground(
    run: Callable[[Hooks], dict[str, Any]],
    folder: Path,
    callbacks: Sequence[Callback] = (),
    progress: bool = False,
) -> dict[str, Any]:
    """What `run` returns; Ctrl-C leaves a checkpoint, and is a KeyboardInterrupt after it."""
    with stopped_by(signal.SIGINT) as stop, run_bar() if progress else nullcontext() as bar:
        try:
            return run(Hooks(bar, stop, callbacks))
        except Interrupted:
            sentence = f"stopped; go on with basil.resume({str(folder)!r})"
            raise KeyboardInterrupt(sentence) from None
