"""Samples as bytes and back; folders of one's own."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from basil.data import Dataset, Samples
from basil.data.own import load_own
from basil.data.rows import from_rows, possible, to_rows
from basil.errors import UserError


def dataset(x: Any, y: Any, classes: int) -> Dataset:
    samples = Samples(x, y)
    return Dataset("own", samples, samples, classes, (), (0.0,), (1.0,))


@given(st.data(), st.sampled_from([2, 256, 257, 100_000]), st.booleans())
def test_samples_come_back_as_they_were(data: Any, classes: int, images: bool) -> None:
    n = data.draw(st.integers(1, 5))
    if images:
        x = data.draw(arrays(np.uint8, (n, 1, 2, 3)))
    else:
        x = data.draw(arrays(np.float32, (n, 3), elements=st.floats(-1e6, 1e6, width=32)))
    y = data.draw(arrays(np.int64, n, elements=st.integers(0, classes - 1)))
    mine = dataset(x, y, classes)
    rows = to_rows(mine.train, classes)
    assert rows.dtype == np.uint8
    assert rows.shape == (n, x[0].nbytes + (1 if classes <= 256 else 4))
    back = from_rows(rows, mine)
    assert np.array_equal(back.x, x)
    assert np.array_equal(back.y, y)
    assert possible(rows, mine).all()


def test_a_row_by_hand() -> None:
    """Pixels 7 and 9 of class 3; and 1.0 with the target −2.0, both little-endian float32."""
    image = dataset(np.array([[[[7, 9]]]], np.uint8), np.array([3]), 10)
    assert to_rows(image.train, 10).tolist() == [[7, 9, 3]]
    number = dataset(np.array([[1.0]], np.float32), np.array([-2.0], np.float32), 0)
    assert to_rows(number.train, 0).tolist() == [[0, 0, 128, 63, 0, 0, 0, 192]]


def test_what_cannot_be_a_sample_is_told_apart() -> None:
    like = dataset(np.zeros((2, 1), np.float32), np.array([0, 1]), 2)
    x = np.array([[0.5], [np.nan], [np.inf], [0.5]], np.float32)
    rows = to_rows(Samples(x, np.array([1, 1, 1, 2])), 2)
    assert possible(rows, like).tolist() == [True, False, False, False]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, n in (("train", 6), ("test", 2)):
        np.save(tmp_path / f"{name}-x.npy", np.zeros((n, 1, 2, 2), np.uint8))
        np.save(tmp_path / f"{name}-y.npy", np.arange(n) % 3)
    facts = {"classes": 3, "mean": [1.5], "std": [2]}
    (tmp_path / "dataset.json").write_text(json.dumps(facts))
    return tmp_path


def test_a_folder_of_arrays_is_a_data_set(folder: Path) -> None:
    found = load_own(folder)
    assert (len(found.train), len(found.test), found.classes) == (6, 2, 3)
    assert (found.mean, found.std) == ((1.5,), (2,))
    assert found.train.y.dtype == np.int64


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("dataset.json", "{", "cannot be read as facts of a data set"),
        (
            "dataset.json",
            '{"classes": 3, "mean": [0], "std": [0]}',
            "std = 0.0: .* it must be more than 0",
        ),
        (
            "train-y.npy",
            np.array([0, 1, 2]),
            "train-x.npy, -y.npy: 6 inputs do not go with 3 labels",
        ),
        ("train-y.npy", np.arange(6), "are 0 to 5; with classes = 3 they are 0 to 2"),
        ("train-y.npy", np.zeros(6), "are float64: they must be whole numbers"),
        (
            "train-x.npy",
            np.zeros((6, 4), complex),
            "complex128: they must be numbers, best float32",
        ),
        ("train-x.npy", np.array(3.0), "must be a numpy array, a row a sample"),
        ("test-x.npy", np.zeros((2, 4), np.float32), r"shape \(1, 2, 2\) for training and \(4,\)"),
        ("dataset.json", '{"classes": "3", "mean": [0], "std": [1]}', "it must be like"),
        ("test-x.npy", np.array([{}, {}]), "cannot be read: Object arrays cannot be loaded"),
    ],
)
def test_a_folder_that_is_wrong_is_one_sentence(
    folder: Path, file: str, content: Any, sentence: str
) -> None:
    if isinstance(content, str):
        (folder / file).write_text(content)
    else:
        np.save(folder / file, content)
    with pytest.raises(UserError, match=sentence):
        load_own(folder)
