"""A text as a data set: every token once, no sequence of two keys, whole keys at a node."""

import builtins
import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import basil
from basil import rng
from basil.data import PARTITIONS, load
from basil.data.partition import dealt_by
from basil.experiment import Hooks, Interrupted, Simulation, set_up
from basil.recipe import Recipe, parse

SPEAKERS = ("ANNA", "Second Citizen", "BO", "CLEO")
LINES = {
    "ANNA": "We shall go, and we shall see what there is to be seen there.",
    "Second Citizen": "Who goes there, and why at such an hour of the night?",
    "BO": "Nobody goes.",
    "CLEO": "They went away; and they went away again, as they always do.",
}


@pytest.fixture
def play(tmp_path: Path) -> Path:
    path = tmp_path / "play.txt"
    said = [f"{name}:\n{LINES[name]}" for _ in range(12) for name in SPEAKERS]
    path.write_text("\n\n".join(said) + "\n")
    return path


def of(path: Path, **options: Any) -> basil.Dataset:
    return load("text", 0, path=str(path), **options)


def all_of(data: basil.Dataset) -> tuple[Any, Any, Any]:
    parts = (data.train, data.test)
    assert all(part.key is not None for part in parts)
    return (
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.concatenate([part.key for part in parts if part.key is not None]),
    )


@pytest.mark.parametrize("by", ["speaker", "document", "block"])
def test_each_token_is_followed_by_the_next(play: Path, by: str) -> None:
    data = of(play, by=by, length=16)
    x, y, key = all_of(data)
    assert (data.classes, data.mean, x.shape[1]) == (256, (), 16)
    assert np.array_equal(y[:, :-1][y[:, 1:] >= 0], x[:, 1:][y[:, 1:] >= 0])
    text = play.read_text().encode()
    if by == "block":  # all but the first byte of each block is predicted, once
        assert (y >= 0).sum() == len(text) - len(set(key))
    else:
        counts = Counter(y[y >= 0].tolist())
        assert counts[ord("?")] == 12


def test_a_speaker_is_one_key_wherever_it_speaks(play: Path) -> None:
    x, _, key = all_of(of(play, by="speaker", length=16))
    assert set(key) == set(range(4))
    for number, name in enumerate(SPEAKERS):
        said = x[key == number].astype(np.uint8).tobytes()
        others = [other for other in SPEAKERS if other != name]
        assert not any(f"{other}:".encode() in said for other in others)


def test_a_text_without_names_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "prose.txt").write_text("It was late.\n\nIt was dark: very.\n")
    with pytest.raises(basil.UserError, match="no paragraph of this text begins with a line NAME:"):
        of(tmp_path / "prose.txt", by="speaker")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"path": ""}, "name it in data.path"),
        ({"path": "nowhere.txt"}, r"data.path = 'nowhere.txt' cannot be read as UTF-8 text"),
        ({"by": "page"}, "by = 'page' does not exist"),
        ({"length": 0}, "length = 0: a sequence has at least 1 token"),
        ({"length": 10**6}, "it makes 1 sequences of 1000000 tokens"),
        ({"test_fraction": 1.0}, "test_fraction = 1.0"),
    ],
)
def test_impossible_options(play: Path, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(basil.UserError, match=sentence):
        load("text", 0, **{"path": str(play), **options})


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(basil.UserError, match="cannot be read as UTF-8 text"):
        of(tmp_path / "x.txt")


def test_a_tokenizer_needs_its_package(play: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = builtins.__import__

    def absent(name: str, *rest: Any, **more: Any) -> Any:
        if name == "tokenizers":
            raise ImportError(name)
        return there(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(basil.UserError, match="run `pip install tokenizers`, or use 'bytes'"):
        of(play, tokenizer="tokenizer.json")


# Dealing by key.


def test_whole_keys_go_to_one_node_and_nodes_have_about_as_much() -> None:
    keys = np.repeat(np.arange(40), np.arange(1, 41))
    parts = PARTITIONS["by-key"](keys, 6, rng.stream(0, "partition"))
    held = [set(keys[part].tolist()) for part in parts]
    assert sum(map(len, held)) == 40  # nobody shares one
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) < 40  # less than the largest key


def test_labels_of_tokens_are_dealt_by_key_not_by_class(play: Path) -> None:
    data = of(play, by="speaker", length=16)
    settings = {"data": {"dataset": "text", "path": str(play), "by": "speaker", "length": 16}}
    settings |= {"ring": {"nodes": 4}, "learning": {"model": "tiny-transformer", "batch": 2}}
    setup = set_up(dealt(settings, "by-key"))
    assert data.train.key is not None
    held = [set(data.train.key[part].tolist()) for part in setup.node_data.local.values()]
    assert sorted(map(len, held)) == [1, 1, 1, 1]
    assert set.union(*held) == set(range(4))
    for partition in ("sorted", "shards", "dirichlet"):
        with pytest.raises(basil.UserError, match=f"'{partition}' .* a label for each token; use"):
            set_up(dealt(settings, partition))


def dealt(tree: dict[str, Any], partition: str) -> Recipe:
    return parse({**tree, "data": {**tree["data"], "partition": partition}})


def test_finer_labels_are_keys_and_without_either_it_is_one_sentence() -> None:
    coarse = load("digits", 0, labels="coarse").train
    assert dealt_by("by-key", coarse) is coarse.fine
    assert dealt_by("sorted", coarse) is coarse.y
    with pytest.raises(basil.UserError, match="deals samples by their keys, and this data set has"):
        dealt_by("by-key", load("digits", 0).train)


# A run.


def ring(play: Path) -> dict[str, Any]:
    return {
        "data": {"dataset": "text", "path": str(play), "by": "speaker", "length": 16},
        "ring": {"nodes": 4, "byzantine": 1},
        "attack": {"name": "gaussian"},
        "scheme": {"rounds": 30},
        "learning": {
            "model": "tiny-transformer",
            "width": 16,
            "depth": 1,
            "batch": 8,
            "schedule": "constant",
            "rate": 0.3,
        },
        "record": {"every": 30},
    }


def test_a_ring_with_a_liar_learns_more_than_the_frequencies_of_letters(
    play: Path, tmp_path: Path
) -> None:
    result = basil.run(ring(play), out=tmp_path / "run")
    _, y, _ = all_of(of(play, by="speaker", length=16))
    shares = np.bincount(y[y >= 0]) / (y >= 0).sum()
    entropy = -(shares[shares > 0] * np.log(shares[shares > 0])).sum()
    assert result.summary["loss"]["worst"] < entropy - 0.2
    assert result.summary["accuracy"]["worst"] > shares.max() + 0.05


def test_a_run_goes_on_only_with_the_text_that_it_began_with(play: Path, tmp_path: Path) -> None:
    stopped = itertools.count()
    with pytest.raises(Interrupted):
        Simulation(set_up(parse(ring(play)))).run(
            tmp_path / "run", Hooks(stop=lambda: next(stopped) > 6)
        )
    play.write_text(play.read_text().replace("Nobody", "Anyone"))
    with pytest.raises(basil.UserError, match="was run with other data"):
        basil.resume(tmp_path / "run")
