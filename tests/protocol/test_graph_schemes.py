"""Every scheme beyond the ring: it learns, it bears attacks, it goes on after a stop."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

from basil.attack import ATTACKS
from basil.errors import UserError
from basil.experiment import Hooks, Interrupted, Simulation, resume, set_up
from basil.protocol.schemes import GRAPH_SCHEMES, LOCAL_SCHEMES, POOLED_SCHEMES
from basil.recipe import parse, to_toml
from basil.record.recorder import Recorder

SCHEMES = [*GRAPH_SCHEMES, *LOCAL_SCHEMES, *POOLED_SCHEMES]
ROBUST = [name for name in GRAPH_SCHEMES if name != "g-plain"]


def recipe(scheme: str, attack: str = "none", /, **more: Any) -> Any:
    tree: dict[str, Any] = {
        "seed": 3,
        "ring": {"nodes": 8, "byzantine": 2},
        "graph": {"p": 0.8},
        "scheme": {"name": scheme, "rounds": 6},
        "learning": {"model": "softmax", "batch": 16, "rate": 0.1},
        "attack": {"name": attack},
        "record": {"every": 2, "checkpoint": 3600},
    }
    for section, values in more.items():
        tree.setdefault(section, {}).update(values)
    return parse(tree)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_learns(scheme: str, tmp_path: Path) -> None:
    rounds = {"scheme": {"rounds": 40}, "record": {"every": 40}}
    summary = Simulation(set_up(recipe(scheme, **rounds))).run(tmp_path / "run")
    assert summary["accuracy"]["worst"] > 0.7  # guessing: 0.1
    assert summary["selection"] == {"byzantine": None, "nearest": None}
    assert (tmp_path / "run" / "selections.csv").read_text().count("\n") == 1


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_meets_every_attack(scheme: str, attack: str, tmp_path: Path) -> None:
    alpha = 0.1 if ATTACKS[attack].needs_sharing else 0.0
    start = {"attack": {"start": 2}, "scheme": {"rounds": 4}, "sharing": {"alpha": alpha}}
    if attack in ("rescale", "permute", "ballast", "twins"):  # softmax has no hidden units
        start["learning"] = {"model": "mlp"}
    experiment = set_up(recipe(scheme, attack, **start))
    summary = Simulation(experiment).run(tmp_path / "run")
    if scheme != "g-plain":
        assert summary["loss"]["worst"] is not None  # it is a number


@pytest.mark.parametrize("scheme", ROBUST)
@pytest.mark.parametrize("kind", ["nan", "inf", "huge", "mixed"])
def test_no_robust_scheme_takes_in_garbage(scheme: str, kind: str, tmp_path: Path) -> None:
    summary = Simulation(set_up(recipe(scheme, "garbage", attack={"kind": kind}))).run(
        tmp_path / "run"
    )
    assert summary["loss"]["worst"] < 2.5  # ln 10 = 2.3 at the start


def test_g_plain_breaks_on_a_single_nan(tmp_path: Path) -> None:
    """It has no defence: that is what it is there to show."""
    summary = Simulation(set_up(recipe("g-plain", "garbage", attack={"kind": "nan"}))).run(
        tmp_path / "x"
    )
    assert summary["loss"]["worst"] is None  # not a number


def test_under_gaussian_noise_ubar_stands_and_g_plain_falls(tmp_path: Path) -> None:
    rounds = {"scheme": {"rounds": 40}, "record": {"every": 40}}
    worst = {
        name: Simulation(set_up(recipe(name, "gaussian", **rounds))).run(tmp_path / name)[
            "accuracy"
        ]["worst"]
        for name in ("ubar", "g-plain")
    }
    assert worst["ubar"] > 0.7
    assert worst["g-plain"] < 0.4


# -- a stop in the middle --------------------------------------------------------------------


class StopAfter:
    def __init__(self, instants: int) -> None:
        self.left = instants

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


def files(folder: Path) -> tuple[Any, ...]:
    """All that a run leaves, without the seconds that it took."""
    summary = json.loads((folder / "summary.json").read_text())
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for entry in [summary, *metrics]:
        del entry["seconds"]
    return summary, metrics, (folder / "models.safetensors").read_bytes()


CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ubar": ("ubar", "gaussian", {}),
    "ubar, hidden": ("ubar", "hidden", {"attack": {"start": 2}}),
    "ubar, silence": ("ubar", "silent", {"attack": {"start": 3}}),
    "ubar, dropout and return": (
        "ubar",
        "layer-sign-flip",
        {"ring": {"events": [{"node": 2, "leaves": 2, "returns": 4}, {"node": 5, "leaves": 3}]}},
    ),
    "momentum is state": ("nna", "inverse", {}),
    "clipped gossip on unequal degrees": (
        "clipped-gossip",
        "stale",
        {"graph": {"p": 0.5, "weights": "metropolis"}},
    ),
    "who pulls from whom": ("rpel", "sign-flip", {"scheme": {"pull": 3, "rounds": 6}}),
    "a lie that is tried out": ("cs+", "optimal-ipm", {}),
    "models are fetched": ("sketchguard", "sign-flip", {"scheme": {"sketch": 50, "rounds": 6}}),
    "buckets are drawn": ("gts", "ipm", {"graph": {"p": 0.8, "mixing": "bucketing"}}),
    "centralised": ("centralised", "gaussian", {}),
    "local": ("local", "gaussian", {}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_stopped_and_resumed_equals_uninterrupted(
    tmp_path: Path, case: tuple[str, str, dict[str, Any]]
) -> None:
    scheme, attack, more = case
    Simulation(set_up(recipe(scheme, attack, **more))).run(tmp_path / "whole")
    stopped_at = set()
    for instants in (0, 1, 2, 3, 5, 8, 13):
        folder = tmp_path / str(instants)
        try:
            Simulation(set_up(recipe(scheme, attack, **more))).run(
                folder, Hooks(stop=StopAfter(instants))
            )
        except Interrupted:
            stopped_at.add(instants)
            resume(folder)
        assert files(folder) == files(tmp_path / "whole")
    assert {0, 1, 2, 3} <= stopped_at


# -- what a run says ---------------------------------------------------------------------------


def test_costs_grow_from_line_to_line(tmp_path: Path) -> None:
    experiment = set_up(recipe("ubar"))
    summary = Simulation(experiment).run(tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert experiment.participants.graph is not None
    edges, size = sum(experiment.participants.graph.degrees), experiment.compute.layout.size
    for line in lines:
        # A node that has finished a round has sent its model of the next one.
        sent = {k * edges for k in (line["round"], min(line["round"] + 1, 6))}
        assert min(sent) <= line["messages"] <= max(sent)
        assert line["bytes"] == 4 * size * line["messages"]
        assert line["steps"] >= 8 * line["round"]
    last = lines[-1]
    assert last["virtual_seconds"] == summary["virtual_seconds"]
    assert last["bytes"] == summary["messages"]["bytes"]
    assert last["evaluations"] == summary["work"]["evaluations"]
    assert last["distances"] == summary["work"]["distances"] == 6 * edges
    facts = json.loads((tmp_path / "run/run.json").read_text())
    assert facts["graph"]["edges"] == edges // 2
    assert facts["graph"]["redraws"] == experiment.participants.graph.redraws


def test_an_evaluation_holds_models_of_one_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a star-like graph the leaves are ahead of the hub; they are not evaluated before it."""
    file = tmp_path / "edges.txt"
    file.write_text("\n".join(["0 1", "1 2", "2 3", *(f"3 {i}" for i in range(4, 8))]))
    reports: list[int] = []
    at_evaluation: list[tuple[int, int]] = []
    record, evaluate = Recorder.record, Recorder._evaluate

    def spy(self: Recorder, node: int, turn: Any, now: float) -> None:
        reports.append(turn.round)
        record(self, node, turn, now)

    def look(self: Recorder, done: Any) -> None:
        at_evaluation.append((self.round, sum(k <= self.round for k in reports)))
        evaluate(self, done)

    monkeypatch.setattr(Recorder, "record", spy)
    monkeypatch.setattr(Recorder, "_evaluate", look)
    own = {"graph": {"name": "edges", "file": str(file)}}
    tree = {"time": {"megabits": 1.0}}
    case = recipe("g-plain")
    case = parse({**_tree(case), **own, **tree})
    Simulation(set_up(case)).run(tmp_path / "run")
    assert reports != sorted(reports)  # some were ahead
    assert at_evaluation == [(0, 0), (2, 16), (4, 32), (6, 48)]


def _tree(settled: Any) -> dict[str, Any]:
    return tomllib.loads(to_toml(settled))


def test_centralised_is_sgd_on_all_benign_data(tmp_path: Path) -> None:
    experiment = set_up(recipe("centralised", "gaussian"))
    summary = Simulation(experiment).run(tmp_path / "run")
    assert summary["messages"]["count"] == 0
    assert summary["work"]["steps"] == 6 * 6  # as many as 6 benign nodes take in 6 rounds
    assert summary["virtual_seconds"] == pytest.approx(36 * experiment.timing.step)
    benign = {
        int(i) for node in experiment.participants.benign for i in experiment.node_data.local[node]
    }
    (drawn,) = {
        len(experiment.node_data.draw(experiment.participants.members[0], k)) for k in (1, 2)
    }
    assert drawn == 6
    batches = [
        b
        for k in range(1, 30)
        for b in experiment.node_data.draw(experiment.participants.members[0], k)
    ]
    assert {int(i) for b in batches for i in b.indices.tolist()} <= benign


@pytest.mark.parametrize(
    ("scheme", "options", "sentence"),
    [
        ("ubar", {"keep_fraction": 0.0}, "scheme.keep_fraction = 0.0: it must be above 0 to 1"),
        ("ubar", {"keep_fraction": 1.5}, "above 0 to 1"),
        ("ubar", {"alpha": -0.1}, "scheme.alpha = -0.1: it must be from 0 to 1"),
        ("bridge", {"trim": 4}, r"scheme.trim = 4: node \d has \d neighbours.*at most \d"),
        ("nna", {"discard": 7}, "scheme.discard = 7"),
        ("nna", {"momentum": 1.2}, "from 0 to 1"),
        ("clipped-gossip", {"radius": -1.0}, "more than 0, or 0 for its estimate"),
        ("balance", {"gamma": -1.0}, "scheme.gamma = -1.0: it must be 0 or more"),
    ],
)
def test_wrong_options_are_said_before_the_run(
    scheme: str, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        set_up(recipe(scheme, scheme=options))


def test_models_are_never_changed_by_a_scheme(tmp_path: Path) -> None:
    """Neighbours and checkpoints hold the same tensors: a rule that wrote into one would show."""
    experiment = set_up(recipe("nna"))
    before = experiment.compute.initial.clone()
    Simulation(experiment).run(tmp_path / "run")
    assert torch.equal(experiment.compute.initial, before)


def test_times_of_distances_can_be_measured() -> None:
    measured = dict.fromkeys(("forward", "step", "distance", "average"), "measured")
    timing = set_up(recipe("ubar", time=measured)).timing
    assert 0 < timing.distance < timing.forward
    assert timing.average > 0


def test_a_run_says_how_many_benign_nodes_are_outnumbered() -> None:
    experiment = set_up(recipe("ubar", "gaussian", graph={"p": 0.4}))
    assert experiment.participants.graph is not None
    lost = 0
    for node in experiment.participants.benign:
        byzantine = [
            j
            for j in experiment.participants.graph.neighbours[node]
            if j in experiment.participants.byzantine
        ]
        lost += len(byzantine) >= len(experiment.participants.graph.neighbours[node]) - len(
            byzantine
        )
    assert experiment.participants.facts()["graph"]["outnumbered"] == lost
