"""Attacks through the data: whose samples are changed, how, and what comes of it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from basil import rng
from basil.attack.data import backdoor, label_flip
from basil.data import Dataset, Samples, load
from basil.errors import UserError
from basil.experiment import Setup, Simulation, set_up
from basil.recipe import parse
from basil.record.evaluate import Evaluation, evaluate

from attack_helpers import view

DIGITS = load("digits", 0)


def experiment(attack: dict[str, Any], **sections: dict[str, Any]) -> Setup:
    tree: dict[str, Any] = {
        "ring": {"nodes": 8, "byzantine": 2},
        "scheme": {"rounds": 4},
        "learning": {"batch": 16, "rate": 0.1},
        "attack": attack,
    }
    for name, values in sections.items():
        tree[name] = {**tree.get(name, {}), **values}
    return set_up(parse(tree))


def drawn(lab: Setup, node: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Raw inputs and labels of the samples that a node trains on in a round."""
    indices = torch.from_numpy(
        np.concatenate([batch.indices for batch in lab.node_data.draw(node, k)])
    )
    pool = lab.compute.pool
    return pool.x[indices].numpy(), pool.y[indices].numpy()


def test_only_byzantine_nodes_train_on_flipped_labels() -> None:
    lab = experiment({"name": "label-flip", "start": 3})
    honest = experiment({"name": "none"})
    assert len(lab.participants.byzantine) == 2
    for node in range(8):
        for k in (1, 2, 3, 4):
            (x, y), (true_x, true_y) = drawn(lab, node, k), drawn(honest, node, k)
            assert np.array_equal(x, true_x)  # the same samples in the same order
            lies = node in lab.participants.byzantine and k >= 3
            assert np.array_equal(y, 9 - true_y if lies else true_y)


def test_sybils_train_on_the_samples_of_one_of_them() -> None:
    lab, honest = experiment({"name": "sybils"}), experiment({"name": "none"})
    first, second = sorted(lab.participants.byzantine)
    owned = set(honest.node_data.local[first].tolist())
    true = {DIGITS.train.x[i].tobytes(): int(DIGITS.train.y[i]) for i in owned}
    pool = lab.compute.pool
    for node in (first, second):
        mine = torch.from_numpy(lab.node_data.poisoned[node])
        assert len(mine) == len(lab.node_data.local[node])
        for x, y in zip(pool.x[mine].numpy(), pool.y[mine].tolist(), strict=True):
            assert y == 9 - true[x.tobytes()]


def test_only_the_samples_of_byzantine_nodes_are_copied() -> None:
    lab = experiment({"name": "label-flip"})
    theirs = sum(len(lab.node_data.local[node]) for node in lab.participants.byzantine)
    assert len(lab.compute.pool) == len(DIGITS.train) + theirs
    assert torch.equal(lab.compute.pool.y[: len(DIGITS.train)], torch.from_numpy(DIGITS.train.y))
    assert len(experiment({"name": "gaussian"}).compute.pool) == len(DIGITS.train)


def test_one_class_can_be_flipped_into_another() -> None:
    made = label_flip.poison(DIGITS.train, DIGITS, rng.stream(0), source=3, target=8)
    was = DIGITS.train.y
    assert np.array_equal(made.y[was == 3], np.full((was == 3).sum(), 8))
    assert np.array_equal(made.y[was != 3], was[was != 3])


def test_a_fraction_of_the_samples_gets_patch_and_target() -> None:
    own = Samples(DIGITS.train.x[:100], DIGITS.train.y[:100])
    before = own.x.copy(), own.y.copy()
    made = backdoor.poison(own, DIGITS, rng.stream(0, "a"), target=7, fraction=0.3, size=2)
    assert np.array_equal(own.x, before[0])
    assert np.array_equal(own.y, before[1])
    patched = (made.x[:, :, -2:, -2:] == DIGITS.train.x.max()).all(axis=(1, 2, 3))
    assert patched.sum() == 30
    assert (made.y[patched] == 7).all()
    assert np.array_equal(made.y[~patched], own.y[~patched])
    assert np.array_equal(made.x[~patched], own.x[~patched])
    outside = made.x.copy()
    outside[:, :, -2:, -2:] = own.x[:, :, -2:, -2:]
    assert np.array_equal(outside, own.x)  # nothing but the corner has changed


def test_success_is_the_share_of_other_classes_that_the_patch_turns() -> None:
    """Two models that say one class whatever they see: the target always, and never."""
    lab = experiment({"name": "backdoor", "target": 4})
    assert lab.triggered is not None
    assert len(lab.triggered) == int((DIGITS.test.y != 4).sum())
    assert bool((lab.triggered.y == 4).all())

    def always(label: int) -> torch.Tensor:
        vector = torch.zeros_like(lab.compute.initial)
        vector[-10 + label] = 1.0  # the last layer's biases
        return vector

    models = [always(4), always(4), always(5), always(5)]
    found = evaluate(
        models, Evaluation(lab.compute, lab.test, len(lab.test), triggered=lab.triggered)
    ).wait()
    assert found["attack_success"] == {"worst": 1.0, "mean": 0.5}
    assert found["accuracy"]["worst"] == pytest.approx(
        min((DIGITS.test.y == 4).mean(), (DIGITS.test.y == 5).mean())
    )
    assert "attack_success" not in evaluate(models, Evaluation(lab.compute, lab.test, 10)).wait()


def test_boost_lengthens_the_update() -> None:
    seen = view(chosen=torch.ones(42), honest=torch.full((42,), 3.0))
    assert torch.equal(backdoor(seen, boost=5.0), torch.full((42,), 11.0))  # type: ignore[arg-type]
    assert backdoor(seen) is seen.honest


@pytest.mark.parametrize(
    ("attack", "dataset", "said"),
    [
        ({"name": "label-flip"}, "regression", "changes class labels: data set synthetic has none"),
        ({"name": "backdoor"}, "regression", "changes class labels"),
        (
            {"name": "backdoor"},
            "synthetic",
            "puts a patch into images, or a word into texts: data set synthetic has neither",
        ),
        ({"name": "backdoor", "target": 10}, "digits", "target = 10: the classes are 0 to 9"),
        ({"name": "backdoor", "fraction": 0.0}, "digits", "fraction = 0.0: it must be more than 0"),
        ({"name": "backdoor", "size": 9}, "digits", "size = 9: images of digits have 8 × 8 pixels"),
        ({"name": "backdoor", "size": 0}, "digits", "size = 0: it must be 1 or more"),
        ({"name": "backdoor", "boost": -1.0}, "digits", "boost = -1.0: it must be more than 0"),
        ({"name": "label-flip", "source": 3}, "digits", "target = -1: the classes are 0 to 9"),
        (
            {"name": "label-flip", "source": 3, "target": 3},
            "digits",
            "target = 3: it must differ from attack.source",
        ),
        ({"name": "backdoor", "patch": 3}, "digits", "unknown key 'patch'"),
        ({"name": "betrayal", "then": "betrayal"}, "digits", "it must be another attack"),
        ({"name": "betrayal", "then": "gausian"}, "digits", "did you mean 'gaussian'?"),
        ({"name": "betrayal", "std": 2.0}, "digits", "unknown key 'std'"),
        ({"name": "betrayal", "then": 3}, "digits", "then = 3: it must be a string"),
        ({"name": "betrayal", "then": "gaussian", "std": 0.0}, "digits", "std = 0.0"),
        ({"name": "mimic", "target": 99}, "digits", "target = 99: it must be a benign node"),
    ],
)
def test_what_cannot_be_is_said_before_the_run(
    attack: dict[str, Any], dataset: str, said: str
) -> None:
    data: dict[str, Any] = {"dataset": dataset}
    learning = {}
    if dataset == "regression":
        data, learning = {"dataset": "synthetic", "task": "regression"}, {"model": "linear"}
    with pytest.raises(UserError) as error:
        experiment(attack, data=data, learning=learning)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_backdoor_without_attackers_is_checked_all_the_same() -> None:
    with pytest.raises(UserError, match="puts a patch into images"):
        experiment({"name": "backdoor"}, ring={"byzantine": 0}, data={"dataset": "synthetic"})


def test_a_backdoor_opens_an_undefended_ring_and_leaves_clean_accuracy(tmp_path: Path) -> None:
    """Real digits, R-plain: the patch decides where before it decided nothing."""
    settings: dict[str, dict[str, Any]] = {
        "scheme": {"name": "r-plain", "rounds": 30},
        "learning": {"batch": 32, "rate": 0.1},
        "record": {"every": 30},
    }
    attack = {"name": "backdoor", "size": 2}
    attacked = Simulation(experiment(attack, **settings)).run(tmp_path / "attacked")
    # The same with nobody to carry it out: what the patch does to a model that never saw it.
    undisturbed = experiment(attack, **settings, ring={"byzantine": 0})
    alone = Simulation(undisturbed).run(tmp_path / "alone")
    assert attacked["attack_success"]["worst"] > 0.8
    assert alone["attack_success"]["worst"] < 0.2
    assert attacked["accuracy"]["worst"] > alone["accuracy"]["worst"] - 0.05
    last = json.loads((tmp_path / "attacked" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["attack_success"] == attacked["attack_success"]


def test_own_images_of_floats_can_be_patched() -> None:
    x = np.random.default_rng(0).normal(size=(20, 2, 5, 5)).astype(np.float32)
    own = Samples(x, np.arange(20) % 3)
    mine = Dataset("mine", own, own, 3, ("a", "b", "c"), (0.0,), (1.0,))
    made = backdoor.poison(own, mine, rng.stream(0), fraction=1.0, target=1)
    assert (made.x[:, :, -3:, -3:] == x.max()).all()
    assert made.x.dtype == np.float32
