"""What a network is given: pixels on a scale, tokens as they are, files where they lie."""

from pathlib import Path

import numpy as np
import pytest
import torch

from basil import Dataset, Samples
from basil.data.samples import Array
from basil.experiment import Custom, Machine, set_up
from basil.learning.pool import Pool
from basil.recipe import parse


@pytest.mark.parametrize("kind", [np.int16, np.int32, np.int64])
def test_tokens_are_given_as_they_are(kind: type) -> None:
    x: Array = np.arange(12, dtype=kind).reshape(4, 3)
    pool = Pool(Samples(x, x.astype(np.int64)), (), ())
    for which in (torch.tensor([3, 1]), slice(1, 3)):
        inputs, targets = pool.take(which)
        assert inputs.dtype == torch.int64
        assert inputs.equal(torch.from_numpy(x).long()[which])
        assert targets.equal(inputs)


def test_a_network_is_tried_on_the_largest_token() -> None:
    x = np.zeros((5, 3), np.int64)
    x[3, 1] = 9
    assert Pool(Samples(x, x), (), ()).trial()[0].max() == 9


def mapped(x: Array, folder: Path) -> Array:
    np.save(folder / "x.npy", x)
    found: Array = np.load(folder / "x.npy", mmap_mode="r")
    return found


@pytest.mark.parametrize("shape", [(8, 3, 5, 5), (8, 1, 5, 5), (8, 7)])
def test_a_mapped_file_stays_where_it_is_and_gives_the_same_bits(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    held = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    file = mapped(held, tmp_path)
    y = np.arange(8)
    scale = (100.0,), (50.0,)
    resident, there = Pool(Samples(held, y), *scale), Pool(Samples(file, y), *scale)
    assert there.x.data_ptr() == file.ctypes.data  # no copy of it
    assert there.x.equal(resident.x)
    for which in (torch.tensor([5, 2, 2]), slice(3, 6)):
        one, other = resident.take(which)[0], there.take(which)[0]
        assert one.equal(other)
        assert one.stride() == other.stride()  # convolutions go by it


def test_it_stays_there_on_its_way_into_a_run(tmp_path: Path) -> None:
    file = mapped(np.random.default_rng(0).standard_normal((60, 4), np.float32), tmp_path)
    part = Samples(file, np.arange(60) % 3)
    data = Dataset("mapped", part, part, 3, ("a", "b", "c"), (0.0,), (1.0,))
    recipe = parse({"ring": {"nodes": 4}, "learning": {"model": "softmax", "batch": 4}})
    setup = set_up(recipe, Custom(dataset=data), Machine("cpu"))
    assert setup.compute.pool.x.data_ptr() == setup.test.x.data_ptr() == file.ctypes.data


def test_so_do_mapped_tokens(tmp_path: Path) -> None:
    file = mapped(np.arange(24, dtype=np.int32).reshape(4, 6), tmp_path)
    pool = Pool(Samples(file, np.zeros(4, np.int64)), (), ())
    assert pool.x.data_ptr() == file.ctypes.data
    assert pool.take(torch.tensor([2]))[0].tolist() == [list(range(12, 18))]
