"""Samples as others keep them become arrays, or one sentence says what is missing."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset, TensorDataset

import basil
from basil.data import checked


class Pictures(TorchDataset[tuple[torch.Tensor, int]]):
    """As torchvision has them: a tensor and a number."""

    def __init__(self, n: int) -> None:
        draw = torch.Generator().manual_seed(n)
        self.x = torch.randint(0, 256, (n, 3, 4, 4), generator=draw, dtype=torch.uint8)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return self.x[i], i % 4


class Table:
    """As Hugging Face has them: rows by number, columns by name."""

    column_names = ("ids", "label")

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"ids": [i % 5, 1, 2][: 1 + i % 3], "label": i % 2}


def padded(rows: list[dict[str, Any]]) -> tuple[Any, Any]:
    x = [row["ids"] + [0] * (3 - len(row["ids"])) for row in rows]
    return np.array(x), [row["label"] for row in rows]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([(1.0, 0)])


class Picture:
    """What numpy could read, and how is anybody's guess."""

    __array_interface__ = np.zeros((4, 4, 3), np.uint8).__array_interface__


SMALL = {"ring": {"nodes": 3}, "scheme": {"rounds": 2}, "learning": {"batch": 4, "hidden": 4}}


def test_a_pair_of_torch_data_sets_is_read_into_arrays(tmp_path: Path) -> None:
    train, test = Pictures(40), Pictures(12)
    data = checked(basil.from_samples(train, test), "mine")
    assert np.array_equal(data.train.x, train.x.numpy())
    assert data.train.y.tolist() == [i % 4 for i in range(40)]
    assert data.classes == 4
    assert data.train.x.dtype == np.uint8
    exact = train.x.double()
    assert data.mean == pytest.approx(exact.mean((0, 2, 3)).tolist())
    assert data.std == pytest.approx(exact.std((0, 2, 3), correction=0).tolist())
    mine = basil.run(SMALL, dataset=(train, test), out=tmp_path / "pair").summary
    same = basil.run(SMALL, dataset=data, out=tmp_path / "arrays").summary
    assert mine["model_sha256"] == same["model_sha256"]


def test_numbers_that_are_no_bytes_are_taken_as_they_are() -> None:
    x, y = torch.randn(20, 3), torch.randn(20)
    data = checked(basil.from_samples(TensorDataset(x, y), TensorDataset(x, y)), "mine")
    assert (data.classes, data.mean, data.std) == (0, (0.0,), (1.0,))
    assert np.array_equal(data.train.x, x.numpy())
    assert np.array_equal(data.train.y, y.numpy())


def test_lists_of_tokens() -> None:
    part = [(np.array([i % 7, 2, 3]), np.array([2, 3, -100])) for i in range(20)]
    data = checked(basil.from_samples(part, part, classes=7), "mine")
    assert (data.mean, data.train.y.shape, data.classes) == ((), (20, 3), 7)


def test_a_table_is_read_by_what_collate_makes_of_its_rows(tmp_path: Path) -> None:
    data = checked(basil.from_samples(Table(20), Table(6), collate=padded), "mine")
    assert data.train.x[4].tolist() == [4, 1, 0]
    assert data.train.y.tolist() == [i % 2 for i in range(20)]
    assert (data.classes, data.mean) == (2, ())


def ragged(n: int) -> list[Any]:
    return [(np.zeros(3 + i), 0) for i in range(n)]


ASK = "give collate=, a function from a list of samples to (x, y), arrays with a row a sample"
BAD: dict[str, tuple[Any, str]] = {
    "no length": (Stream(), "the training set is a Stream, which has no length, or no samples by"),
    "generator": ((i for i in range(3)), "the training set is a generator, which has no length"),
    "rows": (Table(4), f"samples of the training set have the columns ids, label: {ASK}"),
    "pictures": ([(Picture(), 0)] * 4, f"x of the training set is a Picture, no numbers: {ASK}"),
    "single": ([np.zeros(3)] * 4, "samples of the training set are ndarray, not pairs (x, y): "),
    "ragged": (ragged(2), f"x of the training set has the shapes (3,) and (4,): {ASK}"),
    "empty": ([], "the training set is empty"),
}  # fmt: skip


@pytest.mark.parametrize(("train", "sentence"), BAD.values(), ids=BAD)
def test_what_cannot_be_read_is_one_sentence(train: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(basil.UserError) as error:
        basil.run(SMALL, dataset=(train, Pictures(4)), out=tmp_path / "run")
    assert str(error.value).startswith(sentence)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("collate", "sentence"),
    [
        (lambda rows: {"x": 1}, "collate makes dict of the training set, not (x, y)"),
        (lambda rows: ([[1], [1, 2]], [0, 1]), "x of the training set cannot be made an array"),
        (lambda rows: ([[1], [2]], [0, 1, 1]), "2 inputs do not go with 3 labels"),
    ],
)
def test_what_collate_gets_wrong_is_one_sentence(
    collate: Callable[[list[Any]], Any], sentence: str
) -> None:
    with pytest.raises(basil.UserError) as error:
        basil.from_samples(Table(4), Table(4), collate=collate)
    assert str(error.value).startswith(sentence)
