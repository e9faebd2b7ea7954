"""What cannot fit into this machine is said before anything is allocated."""

import pytest

from basil.errors import UserError
from basil.experiment import memory, set_up
from basil.recipe import load

BILLION = 10**9


@pytest.fixture(autouse=True)
def small_machine(monkeypatch):
    monkeypatch.setattr(memory, "machine_memory", lambda: 8e9)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"data.dataset": "synthetic", "data.samples": BILLION, "data.features": 80},
            "data.dataset = 'synthetic' with samples = 1000000000, features = 80, classes = 5:"
            " such a run needs at least 360 GB of memory, and there are 8 GB",
        ),
        ({"ring.nodes": BILLION}, "ring.nodes = 1000000000: such a run needs at least 4.1 TB"),
        ({"ring.nodes": 10**6}, "nodes = 1000000: there are only 1438 samples to deal"),
        ({"learning.local_steps": 10**12}, "learning.local_steps = 1000000000000: such a run"),
        ({"learning.local_epochs": 10**12}, "learning.local_epochs = 1000000000000: such a run"),
        (
            {"learning.hidden": 100_000, "ring.nodes": 10},
            "learning.model = 'mlp' of 10007600010 parameters on each of 10 nodes: such a run needs"
            " at least 400 GB of memory, and there are 8 GB",
        ),
        ({"learning.hidden": 2**62}, "learning.model = 'mlp': "),
    ],
)
def test_what_a_run_would_need_is_said_instead_of_tried(changes, said):
    with pytest.raises(UserError) as error:
        set_up(load({}, changes))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("changes", [{"factor": 1e38, "every": 1}, {"every": 0}])
def test_a_schedule_that_leaves_float32_is_refused_before_the_run(changes):
    learning = {"schedule": "steps", **changes}
    with pytest.raises(UserError, match=r"'steps': in round \d+ the rate is inf"):
        set_up(load({"learning": learning}))


def test_a_part_of_a_machine_is_all_that_there_is(monkeypatch, tmp_path):
    monkeypatch.undo()
    assert 1e8 < (whole := memory.machine_memory()) < 1e15
    monkeypatch.setattr(memory, "CGROUP", tmp_path / "memory.max")
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.machine_memory() >= whole
    (tmp_path / "memory.max").write_text("1000000\n")
    assert memory.machine_memory() == 1e6
