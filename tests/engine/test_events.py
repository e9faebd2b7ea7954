"""What happens at one instant and in which order, what is counted, and what outlives a stop.

Nodes follow short scripts.  A model takes a second on its way, a note no time; a step takes one
second, an evaluation a quarter.
"""

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import torch

from basil.engine.process import Absence, Work
from basil.engine.simulate import Simulator
from basil.learning.pool import Batch
from basil.protocol.requests import (
    Arrival,
    Checkpoint,
    Combine,
    Missing,
    Observe,
    Protocol,
    Receive,
    Record,
    Rejoin,
    Score,
    ScoreAll,
    Send,
    Train,
)

from ring_helpers import Quadratic, UnitCosts, Witness

Part = Generator[Any, Any, None]
Script = Callable[[dict[str, Any] | None, int | None], Protocol]
"""From a node's last checkpoint and the round in which it returns to what it does."""
MODEL, BATCH = torch.ones(1), Batch(np.array([0]))


class StopAt(Witness):
    """Stops the run after so many records."""

    def __init__(self, records: int) -> None:
        super().__init__()
        self.records = records

    def instant(self, simulator: Simulator) -> bool:
        return len(self.turns) < self.records


def simulator(
    scripts: dict[int, Script], *absences: Absence, stop_at: int = 99, byzantine: int = -1
) -> Simulator:
    compute = Quadratic((0.0,) * 5, x0=0.0).compute()

    def start(node: int, now: float, state: Any, rejoin_round: int | None) -> Protocol:
        return scripts[node](state, rejoin_round)

    flags = {node: node == byzantine for node in scripts}
    costs = UnitCosts(0.25, 1.0, 1.0, distance=1.0)
    return Simulator(flags, start, compute, costs, StopAt(stop_at), absences)


def work(seconds: int) -> Part:
    yield Train(MODEL, (BATCH,) * seconds, 0.0, lambda: 0)


def sends(to: tuple[int, ...], after: int = 0, body: Any = MODEL) -> Script:
    def script(*_: Any) -> Protocol:
        if after:
            yield from work(after)
        yield Send(to, 1, body)
        yield checkpoint(2)

    return script


def checkpoint(k: int, **state: Any) -> Checkpoint:
    return Checkpoint(k, lambda: {"round": k, **state})


# -- one instant ---------------------------------------------------------------------------------


def test_what_arrives_at_the_moment_of_the_deadline_is_in_time() -> None:
    got = []

    def waits(*_: Any) -> Protocol:
        got.append((yield Receive(1.0)))

    assert simulator({0: sends((1,)), 1: waits}).run()
    assert isinstance(got[0], Arrival)


def test_what_arrives_while_work_ends_is_there() -> None:
    """Also for somebody who would wait no longer."""
    got = []

    def works(*_: Any) -> Protocol:
        yield from work(1)
        got.append((yield Receive(1.0)))

    assert simulator({0: works, 1: sends((0,))}).run()
    assert isinstance(got[0], Arrival)


def test_nodes_go_on_in_their_order_whoever_began_first() -> None:
    order: list[int] = []

    def in_one_go(*_: Any) -> Protocol:
        yield from work(2)
        order.append(2)

    def in_two(*_: Any) -> Protocol:
        yield from work(1)
        yield from work(1)
        order.append(1)

    assert simulator({2: in_one_go, 1: in_two}).run()
    assert order == [1, 2]


def test_who_observes_sees_all_that_was_sent_up_to_that_instant() -> None:
    seen = []

    def looks(*_: Any) -> Protocol:
        yield from work(1)
        seen.append((yield Observe()))

    scripts = {0: looks, 1: sends((0,), after=1), 2: sends((0,), after=2)}
    assert simulator(scripts, byzantine=0).run()
    assert {node: float(model) for node, model in seen[0].items()} == {1: 1.0, 2: 0.0}


def test_a_link_takes_in_one_message_after_the_other() -> None:
    got = []

    def hears(*_: Any) -> Protocol:
        got.append((yield Receive(9.0)))
        got.append((yield Receive(9.0)))

    assert simulator({0: hears, 1: sends((0,)), 2: sends((0,))}).run()
    assert [arrival.time for arrival in got] == [1.0, 2.0]


# -- what is counted -----------------------------------------------------------------------------


def test_a_multicast_is_as_many_messages_as_receivers() -> None:
    run = simulator({0: sends((1, 2, 3)), **dict.fromkeys((1, 2, 3), sends((), 0))})
    assert run.run()
    assert (run.done.messages, run.done.bytes) == (3, 3 * 4)


def test_work_is_counted_and_takes_its_time() -> None:
    times = []

    def works(*_: Any) -> Protocol:
        for request in (
            Train(MODEL, (BATCH,) * 2, 0.0, lambda: 0),
            Score(MODEL, BATCH),
            ScoreAll(torch.ones(3, 1), BATCH),
            Combine(lambda: None, distances=4),
        ):
            yield request
            times.append((yield Send((), 1, MODEL)))

    run = simulator({0: works})
    assert run.run()
    assert times == [2.0, 2.25, 3.0, 7.0]
    assert run.done == Work(steps=2, evaluations=4, distances=4)


def test_who_only_pretends_takes_the_time_and_evaluates_nothing() -> None:
    times = []

    def hears(*_: Any) -> Protocol:
        arrival = yield Receive(9.0, BATCH, pretend=True)
        times.append((arrival.losses, (yield Send((), 1, MODEL))))

    run = simulator({0: hears, 1: sends((0,))})
    assert run.run()
    assert times == [(None, 1.25)]
    assert run.done.evaluations == 0


# -- absences ------------------------------------------------------------------------------------


def finishes_rounds(*_: Any) -> Protocol:
    """A round every second second."""
    for k in range(1, 6):
        yield from work(2)
        yield Record(k, MODEL)


def test_what_came_before_a_node_left_is_gone_when_it_returns() -> None:
    got: list[Any] = []

    def leaves(state: dict[str, Any] | None, returns: int | None) -> Protocol:
        if returns is None:
            yield from work(2)  # a model arrives, and nobody takes it in
            yield checkpoint(2)
        else:
            got.append((yield Receive(6.0)))

    scripts = {0: finishes_rounds, 1: leaves, 2: sends((1,))}
    assert simulator(scripts, Absence(1, leaves=2, returns=3)).run()
    assert got == [Missing(6.0)]
    stopped = simulator(scripts, Absence(1, leaves=2, returns=None), stop_at=1)
    assert not stopped.run()
    [away] = [saved for saved in stopped.snapshot()["processes"] if saved["away"]]
    assert away["log"] == []  # nor is it kept for later


def test_who_is_so_late_that_it_leaves_after_its_return_goes_on_until_then() -> None:
    starts: list[tuple[int | None, float]] = []

    def slow(state: dict[str, Any] | None, returns: int | None) -> Protocol:
        starts.append((returns, (yield Send((), 1, MODEL))))
        if returns is None:
            yield from work(7)  # round 2 of the others is over after four seconds
            yield checkpoint(2)

    assert simulator({0: finishes_rounds, 1: slow}, Absence(1, leaves=2, returns=3)).run()
    assert starts == [(None, 0.0), (3, 7.0)]


# -- stopped and taken up again ------------------------------------------------------------------


def test_what_has_come_and_what_is_on_its_way_outlives_a_stop() -> None:
    got: list[tuple[int, float]] = []

    def hears(state: dict[str, Any] | None, _: int | None) -> Protocol:
        if state is None:
            yield from work(3)  # node 2's arrives at 1 s, node 0's at 3.5 s
            yield Record(1, MODEL)
            yield checkpoint(2)
        yield from work(2)
        while isinstance(arrival := (yield Receive(9.0)), Arrival):
            got.append((arrival.sender, arrival.time))

    def late(state: dict[str, Any] | None, _: int | None) -> Protocol:
        for _ in range(10):
            yield Score(MODEL, BATCH)
        yield Send((1,), 1, MODEL)
        yield checkpoint(2)
        yield Receive(9.0)

    scripts: dict[int, Script] = {0: late, 1: hears, 2: sends((1,))}
    whole = simulator(scripts)
    assert whole.run()
    expected, got[:] = got.copy(), []
    assert expected == [(2, 1.0), (0, 3.5)]
    first = simulator(scripts, stop_at=1)
    assert not first.run()
    second = simulator({**scripts, 0: has_sent})
    second.restore(first.snapshot())
    assert second.run()
    assert got == expected
    assert second.total() == whole.total()


def has_sent(state: dict[str, Any] | None, _: int | None) -> Protocol:
    assert state == {"round": 2}  # it goes on after its Send
    yield Receive(9.0)


def test_a_note_takes_no_model_to_be_heard() -> None:
    """A body that is no model is handed over as it is, though models would be scored."""
    got = []

    def hears(*_: Any) -> Protocol:
        got.append((yield Receive(9.0, BATCH)))

    run = simulator({0: hears, 1: sends((0,), body=Rejoin())})
    assert run.run()
    assert isinstance(got[0].body, Rejoin)
    assert run.done.evaluations == 0
