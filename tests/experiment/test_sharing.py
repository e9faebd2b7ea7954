"""Data sharing in whole runs: with every scheme, resumed, with rules for what is sensitive."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from basil.attack.basket_faults import FAULTS
from basil.cli import main
from basil.data.sensitive import SENSITIVE
from basil.errors import UserError
from basil.experiment import Hooks, Interrupted, Simulation, resume, set_up
from basil.protocol.schemes import POOLED_SCHEMES, SCHEMES
from basil.recipe.warn import warnings

from ring_helpers import StopAfter, files_of_run
from sharing_helpers import recipe


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_trains_on_what_was_shared(tmp_path: Path, scheme: str) -> None:
    graph = {"name": "complete"}
    experiment = set_up(recipe(scheme={"name": scheme, "rounds": 2}, graph=graph))
    summary = Simulation(experiment).run(tmp_path / "run")
    if scheme in POOLED_SCHEMES:  # one node has all data anyway
        assert "sharing" not in summary
        return
    assert experiment.shared is not None
    M = experiment.shared.table.size
    assert summary["sharing"]["received"] == [7 * 3 * M]
    assert summary["sharing"]["incidents"] == 0
    assert summary["virtual_seconds"] > summary["sharing"]["seconds"] > 0
    assert summary["messages"]["bytes"] >= summary["sharing"]["bytes"] > 0
    classes = [set(experiment.data.train.y[experiment.node_data.samples(i, 1)]) for i in range(8)]
    assert all(len(found) > 5 for found in classes)  # sorted by class, a node has two or three
    rows = (tmp_path / "run" / "anonymity.csv").read_text().splitlines()
    assert rows[0].startswith("receiver,group,round,samples,candidates")
    written = json.loads((tmp_path / "run" / "sharing.json").read_text())
    assert {node["received"] for node in written["nodes"].values()} == {7 * 3 * M}
    owners = written["possible_owners"]
    assert sum(owners["paper"].values()) == sum(owners["dummies_known"].values()) == 8 * 7 * 3 * M
    assert owners["liars_collude"] == {"4": 8 * 3 * M}  # nobody lies: whole groups


@pytest.mark.parametrize("scheme", ["basil", "r-plain", "ubar"])
@pytest.mark.parametrize("fault", ["none", "silent"])
def test_stopped_and_resumed_equals_uninterrupted(tmp_path: Path, scheme: str, fault: str) -> None:
    sections: dict[str, Any] = {
        "attack": {"name": "gaussian"},
        "scheme": {"name": scheme, "rounds": 4},
        "sharing": {"fault": fault, "fault_round": 2},
    }
    Simulation(set_up(recipe(**sections))).run(tmp_path / "whole")
    stopped = tmp_path / "stopped"
    with pytest.raises(Interrupted):
        Simulation(set_up(recipe(**sections))).run(stopped, Hooks(stop=StopAfter(2)))
    resume(stopped)
    assert files_of_run(stopped) == files_of_run(tmp_path / "whole")
    for name in ("sharing.json", "anonymity.csv"):
        assert (stopped / name).read_text() == (tmp_path / "whole" / name).read_text()


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ({"alpha": 1.5}, "alpha = 1.5"),
        ({"alpha": 0.001}, "less than one for each"),
        ({"groups": 5}, "hides nobody"),
        ({"batches": 0}, "batches = 0"),
        ({"dummies": "air"}, "noise, held-out or file"),
        ({"dummies": "file"}, "name the .npz file"),
        ({"dummies": "file", "public_file": "/nowhere.npz"}, "is no .npz file"),
        ({"fault": "sillent"}, "did you mean 'silent'"),
        ({"sensitive": "classes"}, "list the sensitive classes"),
        ({"sensitive": "classes", "classes": "77"}, "no sample has class 77"),
        ({"sensitive": "subclasses"}, "no finer classes"),
        ({"sensitive": "mask"}, "name the .npy file"),
        ({"sensitive": "mask", "file": "/nowhere.npy"}, "cannot be read"),
        ({"dummies": "held-out", "public": 0.0}, "that is none"),
        ({"epsilon": -1.0}, "epsilon = -1.0"),
        ({"epsilon": 1.0, "delta": 0.0}, "delta = 0.0"),
        ({"epsilon": 1.0, "clip": 0.0}, "clip = 0.0"),
        ({"label_epsilon": 1.0}, "set epsilon too"),
        ({"senders": 0}, "senders = 0"),
        ({"senders": 5}, "has only 4 nodes"),
    ],
)
def test_mistakes_are_said(part: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        set_up(recipe(sharing=part))


def test_poisoned_samples_are_shared_by_those_who_poison() -> None:
    """A label that lies cannot be told from one that does not: it is trained on by all."""
    experiment = set_up(recipe(attack={"name": "label-flip"}))
    bad = set(np.concatenate(list(experiment.node_data.poisoned.values())).tolist())
    assert experiment.shared is not None
    M = experiment.shared.table.size
    for node in experiment.participants.benign:
        assert len(bad.intersection(experiment.node_data.received[node].tolist())) == 2 * 3 * M


def test_noise_is_not_trained_on_and_public_data_is() -> None:
    noise = set_up(recipe()).node_data
    assert noise.offers is not None
    assert all(not np.isin(rows, noise.offers.dummies).any() for rows in noise.received.values())
    public = set_up(recipe(sharing={"dummies": "held-out"})).node_data
    assert public.offers is not None
    assert any(np.isin(rows, public.offers.dummies).any() for rows in public.received.values())
    assert not any(np.isin(rows, public.public).any() for rows in public.local.values())


def test_who_is_away_in_the_first_round_has_no_part_in_the_sharing(tmp_path: Path) -> None:
    events = [{"node": 2, "leaves": 1, "returns": 3}]
    experiment = set_up(recipe(ring={"events": events}))
    assert 2 not in experiment.node_data.received
    assert Simulation(experiment).run(tmp_path / "run")["sharing"]["incidents"] > 0


def test_a_fault_that_nobody_carries_out_is_warned_of() -> None:
    assert any("sharing.fault" in text for text in warnings(recipe(sharing={"fault": "silent"})))


def test_what_a_recipe_can_name_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    for what, table in (("faults", FAULTS), ("sensitive", SENSITIVE)):
        assert main(["list", what]) == 0
        listed = capsys.readouterr().out
        assert all(name in listed for name in table)


def test_runs_side_by_side_share_one_pool_unless_samples_are_changed() -> None:
    """Dummies of noise are nothing to train on: a comparison needs no copy of the data for them."""
    first = set_up(recipe())
    assert set_up(recipe(), reuse=first).compute.pool is first.compute.pool
    noisy = set_up(recipe(sharing={"epsilon": 10.0}), reuse=first)
    assert noisy.compute.pool is not first.compute.pool


def test_others_are_given_noisy_copies_and_the_owner_keeps_its_own(tmp_path: Path) -> None:
    part = {"epsilon": 50.0, "label_epsilon": 2.0}
    experiment = set_up(recipe(sharing=part))
    held, first = experiment.node_data, len(experiment.data.train)
    assert experiment.shared is not None
    M = experiment.shared.table.size
    assert held.offers is not None
    for node, received in held.received.items():
        assert len(received) == 7 * 3 * M
        assert (received >= first).all()  # not one original
        assert not set(received.tolist()) & set(held.offers.of[node].tolist())
        assert (held.samples(node, 1)[: len(held.local[node])] < first).all()
    copies, originals = held.train.x[first:], held.train.x[:first]
    assert not any((originals == copy).all((1, 2, 3)).any() for copy in copies)
    said = Simulation(experiment).run(tmp_path / "run")["sharing"]["noise"]
    assert said["epsilon_of_a_sample"] == 52.0
    assert said["sensitivity"] == pytest.approx(2 * 8)  # 8 × 8 pixels
    assert said["epsilon_of_all_samples_of_a_node"] > 52.0 + (3 * M - 1) * 2.0


def test_what_was_not_shared_cannot_be_learned_by_heart() -> None:
    with pytest.raises(UserError, match=r"set sharing\.alpha"):
        set_up(recipe(sharing={"alpha": 0.0}, attack={"name": "overfit-shared"}))
    late = {"name": "betrayal", "rounds": 1, "then": "overfit-shared"}
    with pytest.raises(UserError, match=r"set sharing\.alpha"):
        set_up(recipe(sharing={"alpha": 0.0}, attack=late))


def test_dummies_from_a_file_go_round_and_are_not_trained_on(tmp_path: Path) -> None:
    x = np.full((5, 1, 8, 8), 9, np.uint8)
    np.savez(tmp_path / "public.npz", x=x, y=np.arange(5))
    part = {"dummies": "file", "public_file": str(tmp_path / "public.npz"), "opening": True}
    experiment = set_up(recipe(sharing=part))
    first = len(experiment.data.train)
    offers = experiment.node_data.offers
    assert offers is not None
    assert offers.dummies.tolist() == list(range(first, first + 5))
    assert (offers.rows(np.array([first + 2]))[0, :64] == 9).all()
    assert all((rows < first).all() for rows in experiment.node_data.received.values())
    np.savez(tmp_path / "public.npz", x=x[:, :, :7], y=np.arange(5))
    with pytest.raises(UserError, match="x must be uint8"):
        set_up(recipe(sharing=part))


def test_models_are_judged_on_all_classes_alike_and_trained_as_before() -> None:
    plain = set_up(recipe()).node_data
    balanced = set_up(recipe(scheme={"by_class": True})).node_data
    for node in range(8):
        drawn, trained = plain.draw(node, 3), balanced.draw(node, 3)
        assert [b.indices.tolist() for b in drawn] == [b.indices.tolist() for b in trained]
        assert plain.judge(node, 3, drawn) is drawn[0]
        judged = balanced.judge(node, 3, trained)
        held = np.bincount(balanced.train.y[balanced.samples(node, 3)], minlength=10)
        counts = np.bincount(balanced.train.y[judged.indices], minlength=10)
        assert len(judged) == len(drawn[0])
        assert (counts >= np.minimum(held, counts.max() - 1)).all()
        assert held.max() > 3 * np.median(held)  # its own classes: there is something to balance


def test_what_has_no_classes_cannot_be_judged_by_them() -> None:
    sections = {
        "data": {"dataset": "synthetic", "task": "regression", "partition": "iid"},
        "learning": {"model": "linear"},
    }
    said = r"scheme\.by_class = true: samples of synthetic have no class"
    with pytest.raises(UserError, match=said):
        set_up(recipe(**sections, sharing={"alpha": 0.0}, scheme={"by_class": True}))
