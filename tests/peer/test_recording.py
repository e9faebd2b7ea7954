"""What a peer leaves on its disk is there before anybody hears of it, also after a kill."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from basil.experiment import Machine, set_up
from basil.host import host
from basil.peer.run.engine import Engine
from basil.peer.run.inbox import Inbox
from basil.peer.run.liveness import Clock
from basil.peer.run.recording import PeerRecorder
from basil.peer.run.start import Options, local_node_of
from basil.peer.run.status import Status
from basil.recipe import parse
from basil.record.run_folder import CHECKPOINT

RECIPE = parse(
    {
        "ring": {"nodes": 4, "byzantine": 0, "connectivity": 1},
        "learning": {"model": "softmax", "batch": 8},
    }
)


class Killed(BaseException):
    pass


class Disk:
    """Remembers which names were forced to it; the node may be killed right before that."""

    def __init__(self) -> None:
        self.forced: set[Path] = set()  # folders
        self.kills = False

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def replace(self, source: Path, target: Path) -> None:
        os.replace(source, target)
        self.forced.discard(target.parent)

    def fsync(self, file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            if self.kills:
                raise Killed
            self.forced.add(Path(os.readlink(f"/proc/self/fd/{file}")))


def opened(folder: Path) -> tuple[PeerRecorder, dict[str, Any] | None]:
    local = local_node_of(RECIPE, 0, Options(folder))
    setup = set_up(RECIPE, machine=Machine("cpu"), held=local.node_data)
    engine = Engine(Inbox(Clock()), lambda send: None, setup.compute)
    recorder = PeerRecorder(folder, setup, engine, Status(0, 1), lambda status: None)
    return recorder, recorder.open({"ring": "a", "node": 0, "attack": "none"})


def test_a_checkpoint_that_a_kill_has_left_is_forced_to_the_disk_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its node would send what it holds, and a power cut would bring the one before."""
    disk, run = Disk(), tmp_path / "run"
    monkeypatch.setattr(host, "disk", disk)
    first, before = opened(tmp_path)
    assert before is None
    first.engine.round, disk.kills = 3, True
    with pytest.raises(Killed):
        first.save()
    first.close()
    assert (run / CHECKPOINT).exists()
    assert run not in disk.forced
    disk.kills = False
    second, saved = opened(tmp_path)
    second.close()
    assert saved is not None
    assert saved["round"] == 3
    assert run in disk.forced
