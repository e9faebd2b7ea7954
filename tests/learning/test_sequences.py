"""A label for each token, several targets: losses and accuracy against sums by hand."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import basil
from basil.experiment import Custom, Machine, set_up
from basil.learning.compute import Compute
from basil.learning.cuda.kernels import LINE, Kernels
from basil.learning.models import cross_entropy, half_squared_error, right_share, tiny_transformer
from basil.learning.pool import Pool
from basil.recipe import parse


def test_losses_of_sequences_count_labelled_tokens_alone() -> None:
    outputs = torch.tensor([[[2.0, 0.0], [0.0, 1.0], [5.0, 5.0]], [[0.0, 0.0]] * 3])
    targets = torch.tensor([[0, 0, -100], [-100, -100, -100]])
    by_hand = (math.log(1 + math.exp(-2)) + math.log(1 + math.exp(1))) / 2
    assert cross_entropy(outputs, targets).tolist() == pytest.approx([by_hand, 0.0])
    assert right_share(outputs, targets).tolist() == [0.5, 0.0]


def test_several_targets_are_averaged_and_never_spread() -> None:
    outputs, targets = (
        torch.tensor([[1.0, 2.0], [0.0, 0.0]]),
        torch.tensor([[0.0, 0.0], [0.0, 4.0]]),
    )
    assert half_squared_error(outputs, targets).tolist() == [1.25, 4.0]
    with pytest.raises(ValueError, match=r"outputs \[2\] for targets \[2, 2\]"):
        half_squared_error(torch.zeros(2), targets)


def sequences(n: int, length: int, classes: int) -> basil.Samples:
    x = np.random.default_rng(n).integers(0, classes, (n, length))
    y = (x + 1) % classes
    y[:, 0] = -100
    return basil.Samples(x, y)


def test_both_paths_agree_on_sequences() -> None:
    pool = Pool(sequences(9, 4, 5), (), ())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        network = tiny_transformer((4,), 5, width=8)
    compute = Compute(network, cross_entropy, pool)
    assert compute.classifies
    [(loss, accuracy)] = compute.test([compute.initial], pool, 9).wait()
    kernels = Kernels(network, compute.layout, cross_entropy, pool, compiled=False)
    vector = kernels.working_model(compute.initial).vector
    assert vector.numel() % LINE == 0
    losses, right = kernels.judge(vector, pool, torch.arange(9))
    assert float(losses.mean()) == pytest.approx(loss, rel=1e-5)
    assert float(right.float().mean()) == pytest.approx(accuracy)


def test_no_token_sees_a_later_one() -> None:
    network = tiny_transformer((6,), 7, width=8)
    x = torch.zeros(1, 6, dtype=torch.int64)
    changed = x.clone()
    changed[0, 4] = 3
    same = (network(x) == network(changed)).all(-1)[0]
    assert same.tolist() == [True] * 4 + [False] * 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"heads": 3}, "width a multiple of heads"), ({"depth": 0}, "each must be 1 or more")],
)
def test_impossible_transformers(options: dict[str, int], sentence: str) -> None:
    with pytest.raises(basil.UserError, match=sentence):
        tiny_transformer((6,), 7, **options)


def recipe(**sections: Any) -> Any:
    usual = {"ring": {"nodes": 3}, "scheme": {"rounds": 2}, "learning": {"batch": 4}}
    return parse({**usual, **sections})


def tokens() -> basil.Dataset:
    names = tuple("abcde")
    return basil.Dataset("tokens", sequences(40, 4, 5), sequences(9, 4, 5), 5, names, (), ())


def test_everybody_starts_from_the_same_weights_whatever_was_drawn_before() -> None:
    starts: list[Compute] = []
    for seed in (1, 1, 2):
        torch.rand(len(starts) + 1)
        settings = recipe(seed=seed, learning={"model": "tiny-transformer", "batch": 4})
        starts.append(set_up(settings, Custom(dataset=tokens())).compute)
    one, again, other = (compute.initial for compute in starts)
    assert one.equal(again)
    for slot in starts[0].layout.slots:  # embeddings and positions are drawn, too
        if slot.name in ("tokens.weight", "positions"):
            assert one[slot.start : slot.stop].std() > 0.1
            assert not one[slot.start : slot.stop].equal(other[slot.start : slot.stop])


def test_tokens_that_a_network_does_not_know_are_one_sentence() -> None:
    data = tokens()
    data.train.x[30, 2] = 5
    with pytest.raises(basil.UserError, match=r"^model: it cannot be applied .*out of range"):
        set_up(
            recipe(learning={"model": "tiny-transformer", "batch": 4}),
            Custom(dataset=data),
            Machine("cpu"),
        )


def poisoned(attack: str) -> tuple[Any, np.ndarray, np.ndarray]:
    """A setup, a Byzantine node's numbers, and those of what it uses instead."""
    settings = recipe(
        ring={"nodes": 3, "byzantine": 1},
        attack={"name": attack} | ({"size": 2, "target": 3} if attack == "backdoor" else {}),
        learning={"model": "tiny-transformer", "batch": 4},
    )
    setup = set_up(settings, Custom(dataset=tokens()))
    [(node, lies)] = setup.node_data.poisoned.items()
    return setup, setup.node_data.local[node], lies


def test_each_label_of_a_sequence_is_flipped() -> None:
    setup, own, lies = poisoned("label-flip")
    honest, told = setup.node_data.train.y[own], setup.node_data.train.y[lies]
    assert np.array_equal(told[honest == -100], honest[honest == -100])
    assert np.array_equal(told[honest >= 0], 4 - honest[honest >= 0])


def test_a_backdoor_of_a_text_is_a_word_and_what_follows_it() -> None:
    setup, own, lies = poisoned("backdoor")
    train = setup.node_data.train
    changed = [i for i, j in zip(own, lies, strict=True) if (train.x[i] != train.x[j]).any()]
    assert 0 < len(changed) <= round(len(own) / 2)
    for j in (j for i, j in zip(own, lies, strict=True) if i in changed):
        [place] = (  # the last token of the vocabulary twice, then the target
            p for p in range(len(train.x[j]) - 1)
            if (train.x[j][p : p + 2] == 4).all() and train.y[j][p + 1] == 3
            and train.y[j][p] == -100
        )  # fmt: skip
        assert place == 0 or train.y[j][place - 1] == -100
    assert setup.triggered is not None
    y = setup.triggered.y.numpy()
    assert ((y != -100).sum(1) == 1).all()
    assert set(y[y != -100]) == {3}


def test_several_targets_are_learned(tmp_path: Path) -> None:
    def part(n: int) -> basil.Samples:
        x = np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32)
        return basil.Samples(x, (x @ np.array([[1, 0], [0, 2], [1, 1]])).astype(np.float32))

    data = basil.Dataset("two", part(90), part(30), 0, ("one", "two"), (0.0,), (1.0,))
    settings = recipe(scheme={"rounds": 30}, learning={"batch": 10, "rate": 0.5})
    result = basil.run(settings, model=nn.Linear(3, 2), dataset=data, out=tmp_path / "run")
    assert result.summary["loss"]["worst"] < 0.05
    with pytest.raises(basil.UserError, match=r"outputs \[2\] for targets \[2, 2\]"):
        basil.run(
            recipe(learning={"model": "linear", "batch": 10}), dataset=data, out=tmp_path / "one"
        )
