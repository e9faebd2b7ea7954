"""A second stream: work that goes on beside the rest."""

from contextlib import AbstractContextManager, nullcontext

import torch


class SideStream:
    """On a CPU there is none, and everything happens in order."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def begin(self) -> AbstractContextManager[object]:
        """What is asked for inside comes after what was asked for up to here; in a graph that is
        being captured it is a branch.
        """
        if self._stream is None:
            return nullcontext()
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        return torch.cuda.stream(self._stream)

    def wait(self) -> None:
        """What is asked for from here on comes after it."""
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)
