"""A sensitive sample never leaves its node: every way that there is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from basil.attack import ATTACKS
from basil.attack.basket_faults import FAULTS
from basil.data import Dataset, Samples
from basil.data.sensitive import SENSITIVE
from basil.experiment import Custom, Hooks, Interrupted, Simulation, resume, set_up
from basil.experiment import sharing_phase as module
from basil.protocol.requests import Send
from basil.protocol.sharing.basket import Basket

from ring_helpers import StopAfter
from sharing_helpers import recipe


def toy(samples: int = 240) -> Dataset:
    """Twelve fine classes in four coarse ones."""
    stream = np.random.default_rng(0)
    x = stream.normal(size=(samples, 5)).astype(np.float32)
    fine = np.arange(samples) % 12
    train = Samples(x, fine // 3, fine)
    names = tuple("abcd")
    return Dataset("toy", train, Samples(x[:20], fine[:20] // 3), 4, names, (0.0,), (1.0,))


WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "noisy": {"epsilon": 1e15, "delta": 0.5, "clip": 1e3},  # so little that copies look the same
    "twice": {"senders": 2},
}


def tap(monkeypatch: Any) -> list[Basket]:
    """All baskets that anybody sends."""
    sent: list[Basket] = []
    metered = module._metered

    def tapped(node: int, protocol: Any, shared: Any) -> Any:
        inner = metered(node, protocol, shared)
        answer = None
        while True:
            try:
                request = inner.send(answer)
            except StopIteration:
                return
            if isinstance(request, Send) and isinstance(request.body, Basket):
                sent.append(request.body)
            answer = yield request

    monkeypatch.setattr(module, "_metered", tapped)
    return sent


def marked(rule: str, folder: Path) -> dict[str, Any]:
    """The options of a rule that marks some of the toy's samples."""
    np.save(folder / "mask.npy", np.arange(240) % 7 == 0)
    options: dict[str, dict[str, Any]] = {
        "classes": {"classes": "0, 2"},
        "subclasses": {"gamma": 0.34},
        "mask": {"file": str(folder / "mask.npy")},
    }
    return options[rule]


@pytest.mark.parametrize("rule", [name for name in SENSITIVE if name != "none"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("opening", [False, True])
@pytest.mark.parametrize("dummies", ["noise", "held-out"])
@pytest.mark.parametrize(("alpha", "way"), [(0.2, "plain"), *((1.0, way) for way in WAYS)])
def test_a_sensitive_sample_never_leaves(
    tmp_path: Path,
    monkeypatch: Any,
    rule: str,
    fault: str,
    opening: bool,
    dummies: str,
    alpha: float,
    way: str,
) -> None:
    """Whatever is sent, by whomever: not one of them is in it, and nobody trains on another's."""
    data, options, sent = toy(), marked(rule, tmp_path), tap(monkeypatch)
    part = {"alpha": alpha, "sensitive": rule, "fault": fault, "opening": opening, **options}
    experiment = set_up(
        recipe(
            sharing={**part, "dummies": dummies, "public": 0.1, "batches": 2, **WAYS[way]},
            data={"dataset": "digits", "partition": "iid"},
            attack={"name": "gaussian"},
            learning={"batch": 4, "model": "softmax"},
        ),
        Custom(dataset=data),
    )
    sensitive = SENSITIVE[rule](data.train, **options)
    if dummies == "held-out":
        sensitive[experiment.node_data.public] = False  # no node's: public from the start
    secret = data.train.x[sensitive]
    offers = experiment.node_data.offers
    assert offers is not None
    numbers = np.concatenate([basket.rows for basket in sent])
    numbers = np.unique(numbers[(numbers >= 0) & (numbers < len(offers))])
    assert len(secret)
    assert len(numbers)
    # By what is in the bytes on the wire, whatever number they have.
    wire = offers.rows(numbers)[:, :20].copy().view(np.float32)
    assert np.abs(wire[:, None] - secret[None]).max(2).min() > 1e-3
    owned = np.abs(wire[:, None] - data.train.x[None]).max(2).min(1) < 1e-3
    assert owned.any()  # the comparison finds what did leave
    for node, received in experiment.node_data.received.items():
        x = experiment.node_data.train.x[received]
        if len(x):
            assert np.abs(x[:, None] - secret[None]).max(2).min() > 1e-3
        assert not set(received.tolist()).intersection(experiment.node_data.local[node].tolist())


@pytest.mark.parametrize("way", WAYS)
def test_nor_is_it_in_a_file_or_in_what_byzantine_nodes_work_with(
    tmp_path: Path, monkeypatch: Any, way: str
) -> None:
    """The run folder, a checkpoint, and the bench of an attack that uses what was shared."""
    data, benches = toy(), []
    attack = ATTACKS["overfit-shared"]
    honest = attack.work
    assert honest is not None

    def spied(bench: Any, **options: Any) -> Any:
        benches.append(bench)
        return honest(bench, **options)

    monkeypatch.setattr(attack, "work", spied)
    made = recipe(
        sharing={"alpha": 1.0, "sensitive": "mask", **marked("mask", tmp_path), **WAYS[way]},
        data={"dataset": "digits", "partition": "iid"},
        attack={"name": "overfit-shared"},
        learning={"batch": 4, "model": "softmax"},
    )
    experiment, folder = set_up(made, Custom(dataset=data)), tmp_path / "run"
    with pytest.raises(Interrupted):
        Simulation(experiment).run(folder, Hooks(stop=StopAfter(12)))
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    resume(folder, Custom(dataset=data))
    files |= {f"{path.name} at the end": path.read_bytes() for path in folder.iterdir()}
    assert {"checkpoint.safetensors", "models.safetensors at the end", "sharing.json"} <= set(files)
    secret = np.arange(240) % 7 == 0
    for sample in data.train.x[secret]:
        assert not any(sample.tobytes() in content for content in files.values())
    assert benches
    for bench in benches:
        own = experiment.node_data.local[bench.node.id]
        assert set(bench.private.tolist()) <= set(own.tolist())
        x = experiment.node_data.train.x[bench.received]
        assert len(x)
        assert np.abs(x[:, None] - data.train.x[secret][None]).max(2).min() > 1e-3


def test_gamma_marks_the_last_subclasses_of_each_class() -> None:
    marked = SENSITIVE["subclasses"](toy().train, gamma=0.34)
    assert [bool(marked[i]) for i in range(12)] == [False, True, True] * 4
    assert not SENSITIVE["subclasses"](toy().train, gamma=1.0).any()
