"""Runs in TensorBoard: `--tensorboard`, then `tensorboard --logdir runs`."""

from pathlib import Path
from typing import Any

from basil.errors import UserError
from basil.record.callback import flat

FOLDER = "tensorboard"  # in the run folder
NOT_DRAWN = {"round"}


class TensorBoard:
    """A callback that writes every measurement as scalars, over rounds."""

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UserError(
                "--tensorboard needs TensorBoard: pip install 'basil-fl[tensorboard]'"
            ) from None
        self._open = SummaryWriter

    def begin(self, folder: Path, recipe: dict[str, Any], round: int) -> None:
        # What an interrupted run wrote after its checkpoint is written again.
        purge = round + 1 if round else None
        self._writer: Any = self._open(folder / FOLDER, purge_step=purge)

    def measured(self, metrics: dict[str, Any]) -> None:
        for name, value in flat(metrics).items():
            if name not in NOT_DRAWN:
                self._writer.add_scalar(name, value, metrics["round"])
        self._writer.flush()

    def end(self, summary: dict[str, Any]) -> None:
        self._writer.close()
