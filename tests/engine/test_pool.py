"""Pieces of work in processes: none takes the others down with it."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from basil.many.processes import DIED, in_processes


def ready() -> None:
    os.environ["READY"] = "yes"
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored


def work(piece: str) -> str:
    if piece == "raise":
        raise ValueError("it was meant to")
    if piece == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if piece.startswith("once:"):  # dies the first time
        mark = Path(piece.removeprefix("once:"))
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    if piece == "slow":
        time.sleep(1)
    if piece.startswith("hang:"):
        time.sleep(600)
        Path(piece.removeprefix("hang:")).touch()
    return f"{piece} {os.environ['READY']}"


@pytest.mark.slow
def test_what_raises_or_dies_is_reported_and_all_others_are_done(tmp_path: Path) -> None:
    pieces = ["a", "raise", "die", f"once:{tmp_path / 'mark'}", "b", "c", "slow"]
    looks: list[list[int]] = []
    ended = list(in_processes(work, pieces, 2, ready, lambda running: looks.append(list(running))))
    assert sorted(each.number for each in ended) == list(range(len(pieces)))
    found = {pieces[each.number]: each for each in ended}
    assert found["raise"].result is None
    assert found["raise"].error == "ValueError: it was meant to"
    assert found["die"].result is None
    assert found["die"].error == DIED
    fine = [piece for piece in pieces if piece not in ("raise", "die")]
    assert [found[piece].result for piece in fine] == [f"{piece} yes" for piece in fine]
    assert any(looks)
    assert all(set(look) <= set(range(len(pieces))) for look in looks)


@pytest.mark.slow
def test_who_stops_listening_stops_the_work(tmp_path: Path) -> None:
    pieces = ["a", f"hang:{tmp_path / 'mark'}"]
    results = in_processes(work, pieces, 1, ready)
    assert next(results).result == "a yes"
    results.close()  # type: ignore[attr-defined]  # returns at once, or this test takes 10 minutes
    assert not list(tmp_path.iterdir())
    assert not multiprocessing.active_children()
