"""How many processes share a GPU: told by what NVIDIA's service leaves in its folder."""

import os
import subprocess
from pathlib import Path

import pytest

from basil.many.gpu import MOST, TAKING_TURNS, gpu_processes


@pytest.fixture
def number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    return tmp_path / "nvidia-cuda-mps-control.pid"


def test_without_the_service_they_take_turns(number: Path) -> None:
    assert gpu_processes() == TAKING_TURNS


@pytest.mark.parametrize(("cores", "processes"), [(1, TAKING_TURNS), (4, 2), (16, 14), (128, MOST)])
def test_with_it_there_is_one_for_each_core(
    number: Path, cores: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    number.write_text(f"{os.getpid()}\n")
    assert gpu_processes() == processes


def test_one_that_died_has_left_its_number(number: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    number.write_text(f"{gone.pid}\n")
    assert gpu_processes() == TAKING_TURNS
