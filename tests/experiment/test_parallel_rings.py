"""Rings in parallel from a recipe to a run folder and its report."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from basil.errors import UserError
from basil.experiment import Simulation, set_up
from basil.experiment.participants import gather
from basil.recipe import parse, warnings
from basil.record.read import read_run
from basil.reporting.plots import distance_figure
from basil.reporting.results_table import results_table


def tree(**more: Any) -> dict[str, Any]:
    sections: dict[str, Any] = {
        "ring": {"nodes": 12, "byzantine": 2, "connectivity": 2, "groups": 3},
        "scheme": {"name": "basil+", "rounds": 4},
        "learning": {"batch": 16, "rate": 0.1},
        "attack": {"name": "gaussian"},
        "record": {"every": 1},
    }
    for section, values in more.items():
        sections.setdefault(section, {}).update(values)
    return sections


def joins(folder: Path) -> list[dict[str, str]]:
    with (folder / "joins.csv").open() as file:
        return list(csv.DictReader(file))


def seed_with(cut: bool) -> dict[str, Any]:
    """The first seed that puts the Byzantine nodes, in a row, last on a ring, or does not."""
    for seed in range(200):
        long = {"scheme": {"rounds": 12}, "learning": {"rate": 0.3}}
        found = {**tree(ring={"placement": "row"}, **long), "seed": seed}
        facts = gather(parse(found)).facts()
        if bool(facts["cut_groups"]) == cut and (cut or not facts["failed_groups"]):
            return found
    raise AssertionError("no such seed")


def test_the_event_of_proposition_5_and_its_record(tmp_path: Path) -> None:
    """All of some S_g Byzantine: every benign node that chooses after them takes a Byzantine
    model, and the run is lost.  The same Byzantine nodes elsewhere do no harm."""
    lost, saved = seed_with(cut=True), seed_with(cut=False)
    bad = Simulation(set_up(parse(lost))).run(tmp_path / "lost")
    good = Simulation(set_up(parse(saved))).run(tmp_path / "saved")
    facts = read_run(tmp_path / "lost").facts
    (group,) = facts["cut_groups"]
    assert group in facts["failed_groups"]
    assert set(facts["groups"][group][-2:]) == set(facts["byzantine"])
    # The group after them has nobody else to choose from.
    after = set(facts["groups"][(group + 1) % 3][-2:])
    rows = [r for r in joins(tmp_path / "lost") if r["stage"] == "aggregation"]
    theirs = [r for r in rows if int(r["node"]) in after]
    assert len(theirs) == 2 * 12
    assert all(int(r["chosen"]) in facts["byzantine"] for r in theirs)
    assert bad["selection_between_groups"]["aggregation"] > 0
    assert good["selection_between_groups"] == {"aggregation": 0.0, "multicast": 0.0}
    assert read_run(tmp_path / "saved").facts["failed_groups"] == []
    assert bad["accuracy"]["worst"] < 0.3 < 0.5 < good["accuracy"]["worst"]


def test_byzantine_nodes_between_groups_are_honest_in_their_rings(tmp_path: Path) -> None:
    """Who lies in the aggregation alone is chosen in its ring, and not between groups."""
    stages = {"stages": ["aggregation", "multicast"]}
    settings = {"ring": {"byzantine": 3}, "attack": {"name": "gaussian", **stages}}
    found = Simulation(set_up(parse(tree(**settings)))).run(tmp_path / "run")
    assert found["selection"]["byzantine"] > 0
    assert read_run(tmp_path / "run").facts["failed_groups"] == []
    assert found["selection_between_groups"] == {"aggregation": 0.0, "multicast": 0.0}


def test_a_run_folder_that_the_report_understands(tmp_path: Path) -> None:
    recipe = parse(tree(ring={"group_rounds": 2, "nodes": 13}))
    summary = Simulation(set_up(recipe)).run(tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert [m["round"] for m in run.metrics] == [0, 1, 2, 3, 4]
    assert list(map(len, run.rings)) == [5, 4, 4]
    # Every benign node's choice in each of two laps, in each of four rounds.
    assert len(run.selections.of_benign()) == 11 * 2 * 4
    # S_2, S_3 and then S_1 choose, two nodes each; then two of each U_g.
    assert len(joins(tmp_path / "run")) == 4 * (3 * 2 + 3 * 2)
    assert summary["groups"] == 3
    assert results_table([run])[1][1] == "Basil+"
    places = [p for p in distance_figure(run).axes[0].patches if isinstance(p, Rectangle)]
    assert max(p.get_x() for p in places if p.get_height() > 0) < 3  # nobody chose beyond S = 2
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["connectivity"] == 2


def test_data_is_dealt_to_more_than_take_part() -> None:
    some = set_up(parse(tree(data={"dealt_to": 48}))).node_data
    all_ = set_up(parse(tree())).node_data
    assert {len(part) for part in some.local.values()} <= {29, 30}
    assert {len(part) for part in all_.local.values()} <= {119, 120}
    together = np.concatenate(list(some.local.values()))
    assert len(np.unique(together)) == len(together)


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        ({"ring": {"groups": 0}}, "groups = 0: it must be more than 0"),
        ({"ring": {"groups": 7}}, "groups = 7: 12 nodes make at most 6 rings of two or more"),
        ({"ring": {"connectivity": 4}}, "connectivity = 4: a ring of 4 nodes has only 3 pred"),
        ({"ring": {"fanout": 1}}, "fanout = 1: it must be 2 or more, or 0"),
        ({"ring": {"group_rounds": 0}}, "group_rounds = 0: it must be more than 0"),
        ({"attack": {"stages": ["rings"]}}, "stages: 'rings' must be one of ring, aggregation"),
        ({"attack": {"stages": ["multicast"]}, "scheme": {"name": "basil"}}, "basil has no stage"),
        ({"data": {"dealt_to": 5}}, "dealt_to = 5: 12 nodes take part"),
        (
            {"ring": {"events": [{"node": 1, "leaves": 2, "stage": "sum"}]}},
            "events.stage = 'sum': it must be one of ring, aggregation, multicast",
        ),
        (
            {
                "scheme": {"name": "basil"},
                "ring": {"events": [{"node": 1, "leaves": 2, "stage": "multicast"}]},
            },
            "events.stage = 'multicast': basil has no such stage",
        ),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(sections: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence.replace("[", r"\[")):
        parse(tree(**sections))


def test_s_is_the_smaller_of_b_plus_1_and_all_others_of_a_ring() -> None:
    without = {"nodes": 12, "byzantine": 5, "groups": 3}
    assert parse({**tree(), "ring": without}).connectivity == 3
    assert parse({**tree(), "ring": {**without, "byzantine": 1}}).connectivity == 2
    assert parse({"ring": without}).connectivity == 6  # groups are nothing to Basil


def test_warnings_of_likely_failure() -> None:
    risky = {"nodes": 400, "byzantine": 80, "connectivity": 3, "groups": 16}
    (sentence,) = warnings(parse({**tree(), "ring": risky}))
    assert "some group" in sentence
    assert "Prop. 5" in sentence
    assert warnings(parse({**tree(), "ring": {**risky, "connectivity": 12}})) == []
    one = {**tree(), "ring": {**risky, "groups": 1, "connectivity": 20}}
    assert any("groups = 1" in sentence for sentence in warnings(parse(one)))
