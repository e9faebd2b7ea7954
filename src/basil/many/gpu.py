"""How many processes a GPU serves well."""

import os
from pathlib import Path

TAKING_TURNS = 2  # the host is busy with one, the device is not; more get in each other's way
SPARE = 2  # cores that are left to others
MOST = 48  # clients of the service


def gpu_processes() -> int:
    """A GPU serves processes one at a time, unless NVIDIA's multi-process service joins them: then
    cores are the limit.
    """
    cores = (os.cpu_count() or 1) - SPARE
    return max(TAKING_TURNS, min(cores, MOST)) if _joined() else TAKING_TURNS


def _joined() -> bool:
    """Is `nvidia-cuda-mps-control -d` at work?  It leaves its number where its clients find it."""
    folder = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
    try:
        number = int((Path(folder) / "nvidia-cuda-mps-control.pid").read_text())
        os.kill(number, 0)
    except PermissionError:
        return True  # it is there, and somebody else's
    except (OSError, ValueError):
        return False
    return True
