"""Every attack in a small real ring: it runs, it is stopped and resumed, it reaches the table."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from basil.attack import ATTACKS
from basil.engine.simulate import Simulator
from basil.experiment import Hooks, Interrupted, Simulation, resume, set_up
from basil.protocol.rules import RULES
from basil.recipe import parse, to_tree
from basil.record.read import read_run
from basil.reporting import write_report
from basil.reporting.results_table import results_table

from ring_helpers import StopAfter, files_of_run


def recipe(attack: str, scheme: str = "basil", **options: Any) -> Any:
    return parse(
        {
            "seed": 5,
            "ring": {"nodes": 7, "byzantine": 2},
            "scheme": {"name": scheme, "rounds": 4},
            "learning": {"batch": 16, "rate": 0.1},
            "attack": {"name": attack, "start": 1, **options},
            "sharing": {"alpha": 0.1 if ATTACKS[attack].needs_sharing else 0.0},
            "record": {"every": 2, "checkpoint": 3600},
        }
    )


@pytest.mark.parametrize("scheme", ["basil", "r-plain"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_every_attack_runs_and_resumes_bit_for_bit(
    tmp_path: Path, attack: str, scheme: str
) -> None:
    options: dict[str, Any] = {"rounds": 1, "then": "stale"} if attack == "betrayal" else {}
    made = recipe(attack, scheme, **options)
    Simulation(set_up(made)).run(tmp_path / "whole")
    stopped = tmp_path / "stopped"
    with pytest.raises(Interrupted):
        Simulation(set_up(made)).run(stopped, Hooks(stop=StopAfter(10)))
    resume(stopped)
    assert files_of_run(stopped) == files_of_run(tmp_path / "whole")


def test_dissensus_reaches_each_receiver_with_its_own_vector(monkeypatch: Any) -> None:
    """What arrives at j is x_j pushed away from j's benign predecessors: seen at the far end."""
    seen: list[tuple[int, int, torch.Tensor, dict[int, torch.Tensor]]] = []
    deliver, send = Simulator._deliver, Simulator._send
    known: dict[tuple[int, int], dict[int, torch.Tensor]] = {}

    def sending(self: Simulator, process: Any, request: Any) -> float:
        known.setdefault((process.node, request.round), self.sent_last.copy())
        return send(self, process, request)

    def arriving(self: Simulator, arrival: Any, receivers: tuple[int, ...]) -> None:
        for j in receivers:
            then = known[(arrival.sender, arrival.round)]
            seen.append((arrival.sender, j, arrival.body, then))
        deliver(self, arrival, receivers)

    monkeypatch.setattr(Simulator, "_send", sending)
    monkeypatch.setattr(Simulator, "_deliver", arriving)
    tree = to_tree(recipe("dissensus"))
    tree["scheme"]["canonical"] = False  # what arrives is what was sent
    lab = set_up(parse(tree))

    class Nobody:
        def record(self, *_: object) -> None: ...

        def instant(self, _: object) -> bool:
            return True

    assert Simulation(lab).simulator(Nobody()).run()
    checked = 0
    for sender, j, body, then in seen:
        if sender not in lab.participants.byzantine or j in lab.participants.byzantine:
            continue
        behind = lab.participants.ring.behind(j, lab.recipe.reach)
        friends = [then[k] for k in behind if k not in lab.participants.byzantine]
        byzantine = sum(k in lab.participants.byzantine for k in behind)
        expected = then[j] - sum(x - then[j] for x in friends) / byzantine
        torch.testing.assert_close(body, expected, atol=1e-5, rtol=1e-4)
        checked += 1
    assert checked > 10


def test_the_table_shows_success_only_where_it_was_measured(tmp_path: Path) -> None:
    Simulation(set_up(recipe("backdoor"))).run(tmp_path / "backdoor")
    Simulation(set_up(recipe("gaussian"))).run(tmp_path / "gaussian")
    opened, plain = read_run(tmp_path / "backdoor"), read_run(tmp_path / "gaussian")
    assert "attack succ. %" not in results_table([plain])[0]
    header, *rows = results_table([opened, plain])
    place = header.index("attack succ. %")
    assert opened.summary is not None
    shown = {row[0]: row[place] for row in rows}
    assert shown["Gaussian"] == "–"
    paths = write_report([opened, plain], tmp_path / "report")
    assert "figures/success.png" in {str(p.relative_to(tmp_path / "report")) for p in paths.figures}
    assert "Attack success" in paths.page.read_text()
    assert "Attack success" not in write_report([plain], tmp_path / "plain").page.read_text()
    assert shown["Backdoor"] == f"{100 * opened.summary['attack_success']['worst']:.1f}"


@pytest.mark.parametrize(
    ("then", "options"), [("inverse", {"scale": 3.0}), ("brink", {"direction": "signs"})]
)
def test_betrayal_equals_the_other_attack_that_starts_later(
    tmp_path: Path, then: str, options: dict[str, Any]
) -> None:
    turned = recipe("betrayal", rounds=2, then=then, **options)
    late = recipe(then, start=3, **options)
    Simulation(set_up(turned)).run(tmp_path / "turned")
    Simulation(set_up(late)).run(tmp_path / "late")
    one, other = (read_run(tmp_path / name).summary for name in ("turned", "late"))
    assert one is not None
    assert other is not None
    assert one["model_sha256"] == other["model_sha256"]


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("rule", RULES)
def test_every_attack_meets_every_rule(tmp_path: Path, rule: str, attack: str) -> None:
    options: dict[str, Any] = {"rounds": 1, "then": "brink"} if attack == "betrayal" else {}
    tree = to_tree(recipe(attack, **options))
    tree["scheme"] |= {"rule": rule, "rounds": 2}
    made = parse(tree)
    Simulation(set_up(made)).run(tmp_path)
    choices = (tmp_path / "selections.csv").read_text().splitlines()
    assert len(choices) == 1 + 2 * made.ring.nodes
    models = load_file(tmp_path / "models.safetensors")
    assert len(models) == made.ring.nodes - made.ring.byzantine
    if rule != "newest":  # it goes on from whatever it is sent, however huge
        assert all(bool(model.isfinite().all()) for model in models.values())


@pytest.mark.parametrize("rule", RULES)
def test_what_a_rule_remembers_outlives_a_stop(tmp_path: Path, rule: str) -> None:
    tree = to_tree(recipe("drift"))
    tree["scheme"] |= {"rule": rule}
    made = parse(tree)
    Simulation(set_up(made)).run(tmp_path / "whole")
    with pytest.raises(Interrupted):
        Simulation(set_up(made)).run(tmp_path / "stopped", Hooks(stop=StopAfter(17)))
    resume(tmp_path / "stopped")
    assert files_of_run(tmp_path / "stopped") == files_of_run(tmp_path / "whole")


@pytest.mark.parametrize("scheme", ["basil", "basil+"])
def test_a_run_may_stop_while_a_lie_is_tried_out(tmp_path: Path, scheme: str) -> None:
    """Or, with Basil+, between a training and what is sent to other groups: wherever it may be."""
    tree = to_tree(recipe("brink", scheme, direction="signs"))
    tree["ring"] |= {"nodes": 8, "groups": 2, "group_rounds": 2, "connectivity": 2}
    made = parse(tree)
    Simulation(set_up(made)).run(tmp_path / "whole")
    for turns in range(1, 24, 3):
        folder = tmp_path / f"stopped{turns}"
        with pytest.raises(Interrupted):
            Simulation(set_up(made)).run(folder, Hooks(stop=StopAfter(turns)))
        resume(folder)
        assert files_of_run(folder) == files_of_run(tmp_path / "whole")


def test_data_that_lies_now_and_then_is_honest_in_between() -> None:
    """Label flips in rounds 3 and 6: elsewhere the node draws from its own samples."""
    lab = set_up(recipe("betrayal", rounds=2, every=3, then="label-flip"))
    byzantine = min(lab.participants.byzantine)
    honest = {int(i) for i in lab.node_data.local[byzantine]}
    own = [honest.issuperset(lab.node_data.samples(byzantine, k).tolist()) for k in range(1, 8)]
    assert own == [True, True, False, True, True, False, True]
