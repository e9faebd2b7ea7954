"""What a run has left, for Python and for notebooks."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import safe_open
from torch import Tensor, nn

from basil.errors import UserError
from basil.record.read import read_run
from basil.record.run_folder import MODELS

if TYPE_CHECKING:
    from basil.reporting.plots import Figure


@dataclass(frozen=True)
class Result:
    """A finished run: where its files are, and its summary (the content of summary.json).

    In a notebook it shows itself as a table with the accuracy over rounds.
    """

    folder: Path
    summary: dict[str, Any] = field(repr=False)

    def models(self) -> dict[int, dict[str, Tensor]]:
        """The final model of each benign node, ready for `module.load_state_dict`."""
        return load_models(self.folder)

    def save_adapter(
        self, folder: str | Path, *, node: int | None = None, model: nn.Module | None = None
    ) -> None:
        """Write the adapter of one node's model as PEFT's `from_pretrained` loads it.

        node: a benign one; by default the first.  model: the network, if it was brought along.
        """
        from basil.experiment.resumption import network_of

        states = self.models()
        network = network_of(read_run(self.folder)) if model is None else model
        parts = [m for m in network.modules() if hasattr(m, "peft_config")]
        if not parts:
            raise UserError("this network has no adapter of PEFT; models() has what was trained")
        network.load_state_dict(states[min(states) if node is None else node], strict=False)
        parts[0].save_pretrained(str(folder))  # type: ignore[operator]

    def metrics(self) -> Any:
        """The lines of metrics.jsonl as dicts.

        Where pandas is installed, a DataFrame with columns such as `accuracy/worst`.
        """
        lines = read_run(self.folder).metrics
        try:
            from pandas import json_normalize
        except ImportError:
            return lines
        return json_normalize(lines, sep="/")

    def plot(self, against: str = "rounds", metric: str = "accuracy") -> "Figure":
        """Test accuracy of the worst benign node over rounds, megabytes or (virtual) seconds.

        metric: "loss", or one that the run was asked for, instead.
        """
        from basil.reporting import accuracy_figure, metric_figure  # matplotlib takes a second

        runs = [read_run(self.folder)]
        if metric == "accuracy":  # or the loss of a regression
            return accuracy_figure(runs, against=against)
        return metric_figure(runs, metric, against)

    def _repr_html_(self) -> str:
        from basil.reporting.page import as_html

        return as_html([read_run(self.folder)])


def load_models(folder: str | Path) -> dict[int, dict[str, Tensor]]:
    """The final models in a run folder: node -> state dict."""
    with safe_open(Path(folder) / MODELS, framework="pt") as file:
        layout = json.loads(file.metadata()["layout"])
        return {
            int(name.removeprefix("node-")): {
                part: file.get_tensor(name)[start:stop].view(shape)
                for part, shape, start, stop in layout
            }
            for name in file.keys()  # noqa: SIM118
        }
