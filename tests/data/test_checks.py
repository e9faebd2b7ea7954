"""Data that cannot be trained on is one sentence each, whichever way it comes in."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import basil
from basil.data import DATASETS, OWN, checked, load
from basil.data.own import load_own
from basil.record.read import read_run


def samples(n: int = 40, **other: Any) -> basil.Samples:
    """Small pictures of three classes; `other`: x or y instead."""
    stream = np.random.default_rng(0)
    x = stream.integers(0, 256, (n, 3, 8, 8), dtype=np.uint8)
    return basil.Samples(**{"x": x, "y": np.arange(n) % 3, **other})


def dataset(**other: Any) -> basil.Dataset:
    good: dict[str, Any] = {
        "name": "pictures",
        "train": samples(),
        "test": samples(12),
        "classes": 3,
        "class_names": ("a", "b", "c"),
        "mean": (120.0,) * 3,
        "std": (60.0,) * 3,
    }
    return basil.Dataset(**{**good, **other})


def holed(value: float) -> basil.Samples:
    x = np.ones((40, 3, 8, 8), np.float32)
    x[7, 1, 2, 3] = value
    return samples(x=x)


def floats(n: int, **other: Any) -> basil.Samples:
    return samples(n, **{"x": np.ones((n, 3, 8, 8), np.float32), **other})


def last(n: int) -> basil.Samples:
    return samples(n, x=np.zeros((n, 8, 8, 3), np.uint8))


def part(n: int, **other: Any) -> basil.Samples:
    """Three tokens a sample, and a label for each."""
    x = np.arange(3 * n, dtype=np.int32).reshape(n, 3) % 3
    return basil.Samples(**{"x": x, "y": (x + 1) % 3, **other})


def tokens(**other: Any) -> basil.Dataset:
    return dataset(**{"train": part(40), "test": part(12), "mean": (), "std": (), **other})


Make = Callable[[], basil.Dataset]
BAD: dict[str, tuple[Make, str]] = {
    "not a number": (
        lambda: dataset(train=holed(np.nan), test=floats(12)),
        "inputs of the training set hold 1 numbers that are NaN, infinite or beyond float32",
    ),
    "infinite": (
        lambda: dataset(train=floats(40), test=holed(np.inf)),
        "inputs of the test set hold 1 numbers that are NaN, infinite or beyond float32",
    ),
    "std of zero": (
        lambda: dataset(std=(60.0, 0.0, 60.0)),
        "std = 0.0: inputs are divided by it, so it must be more than 0",
    ),
    "std below zero": (
        lambda: dataset(std=(60.0, -2.0, 60.0)),
        "std = -2.0: inputs are divided by it, so it must be more than 0",
    ),
    "std for another number of channels": (
        lambda: dataset(mean=(1.0, 2.0), std=(1.0, 2.0)),
        "mean has 2 and std 2 numbers: both must have 1, or 3, one for each channel (axis 1 of x)",
    ),
    "nothing to train on": (
        lambda: dataset(train=samples(0)),
        "the training set is empty",
    ),
    "nothing to test on": (lambda: dataset(test=samples(0)), "the test set is empty"),
    "a test of one class": (
        lambda: dataset(test=samples(12, y=np.ones(12, np.int64))),
        "all labels of the test set are 1: it tells nothing apart",
    ),
    "different lengths": (
        lambda: dataset(train=samples(40, y=np.zeros(39, np.int64))),
        "40 inputs do not go with 39 labels",
    ),
    "a label below zero": (
        lambda: dataset(train=samples(y=np.arange(40) % 3 - 1)),
        "labels of the training set go down to -1: classes are numbered from 0",
    ),
    "a label too large": (
        lambda: dataset(train=samples(y=np.arange(40) % 4)),
        "labels of the training set are 0 to 3; with classes = 3 they are 0 to 2",
    ),
    "one-hot": (
        lambda: dataset(train=samples(y=np.eye(3)[np.arange(40) % 3])),
        "labels of the training set have a column for each class (one-hot): give y.argmax(axis=1)",
    ),
    "labels of floats": (
        lambda: dataset(train=samples(y=np.arange(40) % 3 * 1.0)),
        "labels of the training set are float64: they must be whole numbers, y.astype(np.int64)",
    ),
    "channels last": (
        lambda: dataset(train=last(40), test=last(12)),
        "images have the shape (8, 8, 3), channels last: Basil wants them first,"
        " x.transpose(0, 3, 1, 2)",
    ),
    "targets of several columns": (
        lambda: dataset(train=samples(y=np.ones((40, 2))), classes=0, class_names=()),
        "targets of the training set have the shape (40, 2): one number a sample can be learned,"
        " [n]",
    ),
    "targets that are no numbers": (
        lambda: dataset(train=samples(y=np.full(40, np.nan)), classes=0, class_names=()),
        "targets of the training set hold 40 numbers that are NaN, infinite or beyond float32",
    ),
    "targets that are not as many as their names": (
        lambda: dataset(train=samples(y=np.ones((40, 2))), classes=0),
        "targets of the training set have the shape (40, 2): 3 names are for [n, 3]",
    ),
    "as many labels as there are no tokens": (
        lambda: tokens(train=part(40, y=np.ones((40, 4), np.int64))),
        "labels of the training set have the shape (40, 4): one number a sample can be learned,"
        " [n]",
    ),
    "labels of which none counts": (
        lambda: tokens(train=part(40, y=np.full((40, 3), -100))),
        "labels of the training set are all -100, which means that none counts",
    ),
    "a token's label too large": (
        lambda: tokens(train=part(40, y=np.full((40, 3), 3))),
        "labels of the training set are 3 to 3; with classes = 3 they are 0 to 2",
    ),
    "a token below zero": (
        lambda: tokens(train=part(40, x=np.full((40, 3), -1))),
        "tokens of the training set go down to -1: they are numbered from 0",
    ),
    "bytes without a scale": (
        lambda: dataset(mean=(), std=()),
        "mean = (): it must be finite numbers",
    ),
    "keys that are no numbers": (
        lambda: dataset(train=samples(key=np.full(40, "me"))),
        "keys of the training set are <U2: they must be whole numbers, y.astype(np.int64)",
    ),
    "too few keys": (
        lambda: dataset(train=samples(key=np.arange(39))),
        "39 keys do not go with 40 labels",
    ),
    "too few names": (lambda: dataset(class_names=("a", "b")), "3 classes have 2 names"),
    "a number of classes that is none": (
        lambda: dataset(classes=2.5),
        "classes = 2.5: it must be 2 or more, or 0 for regression",
    ),
    "complex numbers": (
        lambda: dataset(train=samples(x=np.ones((40, 3, 8, 8), complex))),
        "inputs of the training set are complex128: they must be numbers, best float32",
    ),
    "a test of another shape": (
        lambda: dataset(test=samples(12, x=np.zeros((12, 3, 8, 9), np.uint8))),
        "samples have the shape (3, 8, 8) for training and (3, 8, 9) for the test",
    ),
    "a test of another type": (
        lambda: dataset(test=floats(12)),
        "inputs are uint8 for training and float32 for the test",
    ),
    "one number a sample without a column": (
        lambda: dataset(train=samples(x=np.ones(40, np.float32))),
        "inputs of the training set have the shape (40,): a row a sample is wanted, x[:, None]",
    ),
    "a mean that is none": (
        lambda: dataset(mean=("a",)),
        "mean = ('a',): it must be finite numbers",
    ),
    "a list": (
        lambda: dataset(train=basil.Samples([[1.0]], np.zeros(1))),  # type: ignore[arg-type]
        "x of Samples must be a numpy array, a row a sample",
    ),
    "something else": (lambda: (1, 2), "dataset is a tuple, not a basil.Dataset"),  # type: ignore[dict-item, return-value]
}


def refused(attempt: Callable[[], object]) -> str:
    with pytest.raises(basil.UserError) as error:
        attempt()
    return str(error.value)


@pytest.mark.parametrize(("make", "sentence"), BAD.values(), ids=BAD)
def test_bad_data_is_one_sentence_and_nothing_is_trained(
    make: Make, sentence: str, tmp_path: Path
) -> None:
    said = refused(lambda: basil.run("demo", dataset=make(), out=tmp_path / "run"))
    assert said.removeprefix("dataset: ") == sentence
    assert not (tmp_path / "run").exists()


def test_no_two_of_them_are_the_same() -> None:
    assert len({sentence for _, sentence in BAD.values()}) == len(BAD) >= 15


@pytest.fixture
def lent() -> Iterator[Callable[[Make], str]]:
    """Names for data sets of others, for one test."""
    ways: list[Any] = []

    def lend(make: Make) -> str:
        ways.append(DATASETS.lent(lambda seed: make()))
        return str(ways[-1].__enter__())

    yield lend
    for way in ways:
        way.__exit__(None, None, None)


@pytest.mark.parametrize(("make", "sentence"), BAD.values(), ids=BAD)
def test_others_code_is_held_to_the_same(
    make: Make, sentence: str, lent: Callable[[Make], str], tmp_path: Path
) -> None:
    name = lent(make)
    tree = {"data": {"dataset": name}}
    said = refused(lambda: basil.run(tree, out=tmp_path / "run"))
    assert said.endswith(sentence.removeprefix("dataset "))
    assert not (tmp_path / "run").exists()


def written(data: basil.Dataset, folder: Path) -> Path:
    """As `basil node --data` wants it."""
    for name, part in (("train", data.train), ("test", data.test)):
        np.save(folder / f"{name}-x.npy", part.x)
        np.save(folder / f"{name}-y.npy", part.y)
    facts = {"classes": data.classes, "mean": data.mean, "std": data.std}
    (folder / "dataset.json").write_text(json.dumps(facts))
    return folder


NOT_IN_A_FOLDER = ("names", "lengths", "a list", "something", "classes that", "a mean that", "keys")
IN_A_FOLDER = {
    name: bad for name, bad in BAD.items() if not any(w in name for w in NOT_IN_A_FOLDER)
}


@pytest.mark.parametrize(("make", "sentence"), IN_A_FOLDER.values(), ids=IN_A_FOLDER)
def test_so_is_the_folder_of_a_node(make: Make, sentence: str, tmp_path: Path) -> None:
    assert refused(lambda: load_own(written(make(), tmp_path))) == f"{tmp_path}: {sentence}"


def test_whole_numbers_are_tokens_only_without_a_scale() -> None:
    assert checked(tokens(), "mine").train.x.dtype == np.int32  # as they were
    scaled = checked(
        tokens(
            train=part(40, y=np.arange(40) % 3),
            test=part(12, y=np.arange(12) % 3),
            mean=(0,),
            std=(1,),
        ),
        "mine",
    )
    assert scaled.train.x.dtype == np.float32  # features, as they always were
    small = part(40, x=np.ones((40, 3), np.uint16))
    assert checked(tokens(train=small, test=small), "mine").train.x.dtype == np.int64


def test_one_hot_labels_do_not_pass_for_labels_of_tokens() -> None:
    hot = part(40, y=np.eye(3, dtype=np.int64)[np.arange(40) % 3])
    assert "(one-hot)" in refused(lambda: checked(tokens(train=hot), "mine"))


def test_several_targets_are_learned_where_they_have_names(tmp_path: Path) -> None:
    def several(n: int) -> basil.Samples:
        return samples(n, y=np.ones((n, 2)))

    named = dataset(train=several(40), test=several(12), classes=0, class_names=("high", "wide"))
    assert checked(named, "mine").train.y.dtype == np.float32
    facts = {"classes": 0, "targets": 2, "mean": named.mean, "std": named.std}
    (written(named, tmp_path) / "dataset.json").write_text(json.dumps(facts))
    assert load_own(tmp_path).train.y.shape == (40, 2)


def test_a_node_can_have_tokens_of_its_own(tmp_path: Path) -> None:
    found = load_own(written(tokens(), tmp_path))
    assert (found.mean, found.std) == ((), ())
    assert found.train.x.dtype == np.int32
    assert np.array_equal(found.train.y, part(40).y)


@pytest.mark.parametrize("labels", [np.int32, np.uint8, np.uint64, np.int16])
def test_other_numbers_are_converted(labels: Any) -> None:
    part = samples(x=np.full((40, 3, 8, 8), 0.25), y=(np.arange(40) % 3).astype(labels))
    found = checked(dataset(train=part, test=part, mean=np.ones(1), std=[2]), "mine")
    assert found.train.x.dtype == np.float32
    assert (found.train.x == 0.25).all()
    assert found.train.y.dtype == np.int64
    assert np.array_equal(found.train.y, np.arange(40) % 3)
    assert (found.mean, found.std) == ((1.0,), (2.0,))


def test_channels_that_look_like_a_width_are_taken_at_their_word() -> None:
    odd = samples(x=np.zeros((40, 8, 5, 4), np.uint8))
    with pytest.raises(basil.UserError, match="channels last"):
        checked(dataset(train=odd, test=odd, mean=(0.0,), std=(1.0,)), "mine")
    checked(dataset(train=odd, test=odd, mean=(0.0,) * 8, std=(1.0,) * 8), "mine")


def test_shipped_data_is_not_read_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Any:
        raise AssertionError("every value was looked at")

    monkeypatch.setattr(np, "isfinite", refuse)
    before = load("synthetic", 0).train
    assert load("synthetic", 0).train.x.dtype == np.float32
    with pytest.raises(AssertionError):
        checked(replace(load("synthetic", 0), train=before), "mine")


# What a run says of data that was brought along.

RECIPE: dict[str, Any] = {
    "data": {"dataset": "cifar100", "labels": "fine", "partition": "shards", "per_node": 1},
    "ring": {"nodes": 3},
    "scheme": {"rounds": 1},
    "learning": {"batch": 4, "hidden": 4},
}


def test_a_run_says_which_data_was_brought_along(tmp_path: Path) -> None:
    mine = dataset()
    run = read_run(basil.run(RECIPE, dataset=mine, out=tmp_path / "run").folder)
    other = dataset(test=samples(12, y=np.arange(12)[::-1] % 3))
    second = read_run(basil.run(RECIPE, dataset=other, out=tmp_path / "other").folder)
    fact = run.facts["data"]
    assert (fact["name"], fact["train"], fact["test"]) == ("pictures", [40, 3, 8, 8], [12, 3, 8, 8])
    assert fact["sha256"] == checked(dataset(), "mine").sha256 != second.facts["data"]["sha256"]
    assert run.recipe["data"] == {
        "dataset": OWN,
        "name": "pictures",
        "augment": False,
        "digest": fact["sha256"][:12],
        "partition": "shards",
        "per_node": 1,
        "dealt_to": 0,
    }


def test_its_recipe_alone_cannot_run(tmp_path: Path) -> None:
    basil.run(RECIPE, dataset=dataset(), out=tmp_path / "run")
    said = refused(lambda: basil.run(tmp_path / "run" / "recipe.toml", out=tmp_path / "again"))
    assert said.startswith("data set 'own' is brought along (it was 'pictures', ")


def test_shipped_data_needs_no_such_record(tmp_path: Path) -> None:
    tree = {"data": {"dataset": "synthetic", "samples": 60}, "ring": {"nodes": 3}}
    tree |= {"scheme": {"rounds": 1}, "learning": {"model": "softmax", "batch": 4}}
    run = read_run(basil.run(tree, out=tmp_path / "run").folder)
    assert "data" not in run.facts
    assert run.recipe["data"]["dataset"] == "synthetic"
