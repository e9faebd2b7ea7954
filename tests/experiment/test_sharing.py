"""Data sharing in whole runs: with every scheme, resumed, with rules for what is sensitive."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from basil.attack.sharing import FAULTS
from basil.cli import main
from basil.data import Dataset, Samples
from basil.data.sensitive import SENSITIVE
from basil.errors import UserError
from basil.experiment import Experiment, Interrupted, Own, resume
from basil.experiment import sharing as module
from basil.protocol.basket import Basket
from basil.protocol.requests import Send
from basil.protocol.schemes import POOLED_SCHEMES, SCHEMES
from basil.recipe import parse
from basil.recipe.warn import warnings

from ring_helpers import StopAfter, files_of_run


def recipe(**sections: dict[str, Any]) -> Any:
    tree: dict[str, Any] = {
        "seed": 3,
        "data": {"partition": "sorted"},
        "ring": {"nodes": 8, "byzantine": 2},
        "sharing": {"alpha": 0.1, "batches": 3, "groups": 2},
        "scheme": {"rounds": 4},
        "learning": {"batch": 16, "rate": 0.1},
        "record": {"every": 2, "checkpoint": 3600},
    }
    for section, values in sections.items():
        tree.setdefault(section, {}).update(values)
    return parse(tree)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_trains_on_what_was_shared(tmp_path: Path, scheme: str) -> None:
    graph = {"name": "complete"}
    experiment = Experiment(recipe(scheme={"name": scheme, "rounds": 2}, graph=graph))
    summary = experiment.run(tmp_path / "run")
    if scheme in POOLED_SCHEMES:  # one node has all data anyway
        assert "sharing" not in summary
        return
    M = experiment.shared.table.size
    assert summary["sharing"]["received"] == [7 * 3 * M]
    assert summary["sharing"]["incidents"] == 0
    assert summary["virtual_seconds"] > summary["sharing"]["seconds"] > 0
    assert summary["messages"]["bytes"] >= summary["sharing"]["bytes"] > 0
    classes = [set(experiment.data.train.y[experiment.cast.samples(i, 1)]) for i in range(8)]
    assert all(len(found) > 5 for found in classes)  # sorted by class, a node has two or three
    rows = (tmp_path / "run" / "anonymity.csv").read_text().splitlines()
    assert rows[0].startswith("receiver,group,round,samples,candidates")
    written = json.loads((tmp_path / "run" / "sharing.json").read_text())
    assert {node["received"] for node in written["nodes"].values()} == {7 * 3 * M}
    assert sum(written["samples_by_possible_owners"].values()) == 8 * 7 * 3 * M


@pytest.mark.parametrize("scheme", ["basil", "r-plain", "ubar"])
@pytest.mark.parametrize("fault", ["none", "silent"])
def test_stopped_and_resumed_equals_uninterrupted(tmp_path: Path, scheme: str, fault: str) -> None:
    sections: dict[str, Any] = {
        "attack": {"name": "gaussian"},
        "scheme": {"name": scheme, "rounds": 4},
        "sharing": {"fault": fault, "fault_round": 2},
    }
    Experiment(recipe(**sections)).run(tmp_path / "whole")
    stopped = tmp_path / "stopped"
    with pytest.raises(Interrupted):
        Experiment(recipe(**sections)).run(stopped, stop=StopAfter(2))
    resume(stopped)
    assert files_of_run(stopped) == files_of_run(tmp_path / "whole")
    for name in ("sharing.json", "anonymity.csv"):
        assert (stopped / name).read_text() == (tmp_path / "whole" / name).read_text()


def toy(samples: int = 240) -> Dataset:
    """Twelve fine classes in four coarse ones."""
    stream = np.random.default_rng(0)
    x = stream.normal(size=(samples, 5)).astype(np.float32)
    fine = np.arange(samples) % 12
    train = Samples(x, fine // 3, fine)
    names = tuple("abcd")
    return Dataset("toy", train, Samples(x[:20], fine[:20] // 3), 4, names, (0.0,), (1.0,))


@pytest.mark.parametrize("rule", [name for name in SENSITIVE if name != "none"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("opening", [False, True])
@pytest.mark.parametrize("dummies", ["noise", "held-out"])
@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_a_sensitive_sample_never_leaves(
    tmp_path: Path,
    monkeypatch: Any,
    rule: str,
    fault: str,
    opening: bool,
    dummies: str,
    alpha: float,
) -> None:
    """Whatever is sent, by whomever: not one of them is in it, and nobody trains on another's."""
    data = toy()
    marked = np.arange(240) % 7 == 0
    np.save(tmp_path / "mask.npy", marked)
    options = {
        "classes": {"classes": "0, 2"},
        "subclasses": {"gamma": 0.34},
        "mask": {"file": str(tmp_path / "mask.npy")},
    }[rule]
    sent: list[int] = []
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
                sent.extend(request.body.rows.tolist())
            answer = yield request

    monkeypatch.setattr(module, "_metered", tapped)
    part = {"alpha": alpha, "sensitive": rule, "fault": fault, "opening": opening, **options}
    experiment = Experiment(
        recipe(
            sharing={**part, "dummies": dummies, "public": 0.1, "batches": 2},
            data={"dataset": "digits", "partition": "iid"},
            attack={"name": "gaussian"},
            learning={"batch": 4, "model": "softmax"},
        ),
        Own(dataset=data),
    )
    sensitive = SENSITIVE[rule](data.train, **options)
    if dummies == "held-out":
        sensitive[experiment.cast.public] = False  # no node's: public from the start
    secret = set(np.flatnonzero(sensitive).tolist())
    assert secret
    assert sent
    assert not secret.intersection(sent)
    for node, received in experiment.cast.received.items():
        assert not secret.intersection(received.tolist())
        assert not set(received.tolist()).intersection(experiment.cast.local[node].tolist())


def test_gamma_marks_the_last_subclasses_of_each_class() -> None:
    marked = SENSITIVE["subclasses"](toy().train, gamma=0.34)
    assert [bool(marked[i]) for i in range(12)] == [False, True, True] * 4
    assert not SENSITIVE["subclasses"](toy().train, gamma=1.0).any()


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ({"alpha": 1.5}, "alpha = 1.5"),
        ({"alpha": 0.001}, "less than one for each"),
        ({"groups": 5}, "hides nobody"),
        ({"batches": 0}, "batches = 0"),
        ({"dummies": "air"}, "noise or held-out"),
        ({"fault": "sillent"}, "did you mean 'silent'"),
        ({"sensitive": "classes"}, "list the sensitive classes"),
        ({"sensitive": "classes", "classes": "77"}, "no sample has class 77"),
        ({"sensitive": "subclasses"}, "no finer classes"),
        ({"sensitive": "mask"}, "name the .npy file"),
        ({"sensitive": "mask", "file": "/nowhere.npy"}, "cannot be read"),
        ({"dummies": "held-out", "public": 0.0}, "that is none"),
    ],
)
def test_mistakes_are_said(part: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        Experiment(recipe(sharing=part))


def test_poisoned_samples_are_shared_by_those_who_poison() -> None:
    """A label that lies cannot be told from one that does not: it is trained on by all."""
    experiment = Experiment(recipe(attack={"name": "label-flip"}))
    bad = set(np.concatenate(list(experiment.cast.poisoned.values())).tolist())
    M = experiment.shared.table.size
    for node in experiment.cast.benign:
        assert len(bad.intersection(experiment.cast.received[node].tolist())) == 2 * 3 * M


def test_noise_is_not_trained_on_and_public_data_is() -> None:
    noise = Experiment(recipe()).cast
    assert all(not np.isin(rows, noise.dummies).any() for rows in noise.received.values())
    public = Experiment(recipe(sharing={"dummies": "held-out"})).cast
    assert any(np.isin(rows, public.dummies).any() for rows in public.received.values())
    assert not any(np.isin(rows, public.public).any() for rows in public.local.values())


def test_who_is_away_in_the_first_round_has_no_part_in_the_sharing(tmp_path: Path) -> None:
    events = [{"node": 2, "leaves": 1, "returns": 3}]
    experiment = Experiment(recipe(ring={"events": events}))
    assert 2 not in experiment.cast.received
    assert experiment.run(tmp_path / "run")["sharing"]["incidents"] > 0


def test_a_fault_that_nobody_carries_out_is_warned_of() -> None:
    assert any("sharing.fault" in text for text in warnings(recipe(sharing={"fault": "silent"})))


def test_what_a_recipe_can_name_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    for what, table in (("faults", FAULTS), ("sensitive", SENSITIVE)):
        assert main(["list", what]) == 0
        listed = capsys.readouterr().out
        assert all(name in listed for name in table)
