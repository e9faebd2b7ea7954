"""Files of tensors: what Basil writes, the safetensors library reads."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from basil.record.disk import DTYPES, save_tensors

TENSORS = {
    "é": torch.arange(6.0).reshape(2, 3),
    "2": torch.tensor(-7),
    "10": torch.zeros(0, 4),
    "turned": torch.rand(3, 5, generator=torch.Generator().manual_seed(1)).t(),
    "trained": torch.ones(3, requires_grad=True),
    **{str(dtype): torch.arange(5).to(dtype) for dtype in DTYPES},
}
METADATA = {"tree": '{"a": "\\u00e9", "b": "é\\n"}', "sha256": "0" * 64}


def test_the_library_reads_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_tensors(path, TENSORS, METADATA)
    found = load_file(path)
    assert found.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(found[name], tensor), name
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == METADATA


@pytest.mark.parametrize("count", [0, 1, 12])
def test_it_is_what_the_library_would_write(tmp_path: Path, count: int) -> None:
    """(With one entry of metadata: of several, it writes now this one first and now that.)"""
    tensors = {f"node-{number}": torch.full((number, 2), 0.5) for number in range(count)}
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    save_tensors(mine, tensors, {"layout": '[["é", "\\""]]'})
    save_file(tensors, theirs, {"layout": '[["é", "\\""]]'})
    assert mine.read_bytes() == theirs.read_bytes()


def test_the_order_of_tensors_changes_nothing(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    save_tensors(one, TENSORS, METADATA)
    save_tensors(other, dict(reversed(TENSORS.items())), METADATA)
    assert one.read_bytes() == other.read_bytes()
