"""What a node on a ring takes in, what it refuses, whom it serves: the test is its engine.

Node 3 of five in the order of their ids, S = 2: it stores models of nodes 2 and 1, and sends its
own to nodes 4 and 0.  A model is one number.
"""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from basil.learning.pool import Batch
from basil.learning.promises import Losses, Selection, tensor_of
from basil.protocol.basil import basil
from basil.protocol.drive import Driver
from basil.protocol.inbox import Inbox
from basil.protocol.numbering import Numbering
from basil.protocol.requests import (
    Arrival,
    Checkpoint,
    Missing,
    Receive,
    Record,
    Rejoin,
    Request,
    Score,
    Select,
    Send,
    Train,
)
from basil.protocol.rules import Candidates, Choice, RuleGenerator
from basil.table import states
from basil.topology import Ring

from ring_helpers import Quadratic, plain_node

COMPUTE = Quadratic((0.0,) * 5, x0=0.0).compute()
OF_ROUND = 10  # the batches of round k hold samples 10 k, 10 k + 1, …


def batches(k: int) -> tuple[Batch, ...]:
    return tuple(Batch(np.array([OF_ROUND * k + step])) for step in range(2))


class Told:
    """A node that is told what arrives; what it has sent and kept is to be seen."""

    def __init__(self, **changes: Any) -> None:
        usual = {"ring": Ring(range(5)), "rounds": 9, "draw": batches}
        self.node = plain_node(3, COMPUTE, **{**usual, **changes})
        self.driver = Driver(basil(self.node))
        self.sent: list[Send] = []
        self.trained: list[Train] = []
        self.state: dict[str, Any] = {}
        self.now = 0.0
        self.request = self._go_on(None)

    def hear(self, sender: int, k: int, body: float | Rejoin, losses: float | None = None) -> None:
        """Something arrives half a second after what was last."""
        assert isinstance(self.request, Receive)
        self.now += 0.5
        model = body if isinstance(body, Rejoin) else torch.tensor([body])
        scored = None if losses is None else Losses(torch.tensor([losses]))
        self.request = self._go_on(Arrival(sender, k, model, self.now, scored))

    def candidates(self) -> list[tuple[float, int]]:
        """Nothing more arrives: the models that are scored then, and on which sample."""
        if isinstance(self.request, Receive):
            self.now = max(self.now, self.request.until)
            self.request = self._go_on(Missing(self.now))
        scored = []
        while isinstance(self.request, Score):
            scored.append((float(self.request.model), int(self.request.batch.indices[0])))
            self.request = self._go_on(Losses(torch.zeros(1)))
        return scored

    def take_turn(self, becomes: float = 9.0) -> None:
        """It trains what it has chosen, and sends what becomes of that."""
        self.candidates()
        if isinstance(self.request, Select):
            self.request = self._go_on(Selection([*self.request.models, self.request.own], 0))
        assert isinstance(self.request, Train)
        self.trained.append(self.request)
        self.request = self._go_on(torch.tensor([becomes]))

    def restarted(self, **changes: Any) -> "Told":
        """The same node, from its last checkpoint."""
        return Told(**{"state": self.state, "start": self.now, **changes})

    def _go_on(self, answer: Any) -> Request:
        """Up to the next thing that the test is to answer."""
        self.driver.answer = answer
        for request in self.driver:
            match request:
                case Send():
                    self.sent.append(request)
                    self.driver.answer = self.now
                case Checkpoint():
                    self.state = request.state()
                case Record():
                    pass
                case _:
                    return request
        raise AssertionError("the protocol has ended")


def first(told: Told) -> list[float]:
    return [model for model, _ in told.candidates()]


# -- what is stored ------------------------------------------------------------------------------


def test_a_sender_counts_once_for_each_of_its_turns() -> None:
    told = Told()
    told.hear(1, 1, 10.0)
    told.hear(1, 1, 20.0)
    told.hear(1, 1, 30.0)
    assert first(told) == [10.0, 0.0]  # and x⁰


def test_an_older_turn_of_a_sender_is_refused() -> None:
    told = Told()
    told.take_turn()
    told.hear(1, 2, 10.0)
    told.hear(1, 1, 20.0)
    assert first(told) == [10.0, 0.0]


def test_models_of_others_than_the_predecessors_are_refused() -> None:
    told = Told()
    for stranger in (0, 4, 3):
        told.hear(stranger, 1, 10.0)
    assert first(told) == [0.0]


def test_numbers_that_no_turn_has_are_refused() -> None:
    told = Told()
    for number in (0, -1):
        told.hear(2, number, 10.0)
    assert first(told) == [0.0]


def test_a_model_from_a_turn_to_come_waits_for_it() -> None:
    told = Told()
    told.hear(2, 2, 10.0)
    assert first(told) == [0.0]
    told.take_turn()
    assert first(told) == [10.0, 0.0]  # and the node waits for nobody: its predecessor is here


# -- what is scored ------------------------------------------------------------------------------


def test_a_rounds_first_batch_is_what_the_choice_is_made_on() -> None:
    told = Told()
    assert isinstance(told.request, Receive)
    assert told.request.score_on is not None
    assert told.request.score_on.indices.tolist() == [OF_ROUND]
    assert told.candidates() == [(0.0, OF_ROUND)]
    told.take_turn()
    assert [b.indices.tolist() for b in told.trained[0].batches] == [[OF_ROUND], [OF_ROUND + 1]]


def test_losses_on_the_batch_of_an_earlier_round_decide_nothing() -> None:
    told = Told()
    told.hear(1, 1, 10.0, losses=0.25)
    told.take_turn()
    assert (10.0, 2 * OF_ROUND) in told.candidates()  # its sender has been silent since


# -- deadlines -----------------------------------------------------------------------------------


def test_each_turn_that_was_not_heard_of_has_its_patience() -> None:
    told = Told(patience=4.0)
    assert isinstance(told.request, Receive)
    assert told.request.until == 3 * 4.0  # nodes 0, 1 and 2
    told.hear(1, 1, 10.0)
    assert isinstance(told.request, Receive)
    assert told.request.until == 0.5 + 4.0  # node 2


def test_an_earlier_turn_that_is_heard_of_later_puts_nothing_off() -> None:
    told = Told(connectivity=3, reach=3, patience=4.0)
    told.hear(1, 1, 10.0)
    told.hear(0, 1, 20.0)
    assert isinstance(told.request, Receive)
    assert told.request.until == 0.5 + 4.0


def test_who_returns_gives_a_whole_lap_its_time() -> None:
    told = Told(rejoin_round=3, start=20.0)
    assert [(send.to, type(send.body)) for send in told.sent] == [((0, 1, 2, 4), Rejoin)]
    assert isinstance(told.request, Receive)
    # Answers come from the lap before: since its first turn seven others should have been.
    assert told.request.until == told.state["watch"]["time"] + 7.0


# -- who is served (Appendix C) ------------------------------------------------------------------


def served(told: Told) -> list[tuple[tuple[int, ...], int, float]]:
    """What went out since the last look."""
    sends, told.sent = told.sent, []
    bodies = [send.body for send in sends]
    assert all(isinstance(body, Tensor) for body in bodies)
    return [(s.to, s.round, float(b)) for s, b in zip(sends, bodies, strict=True)]  # type: ignore[arg-type]


def test_a_successor_that_returns_gets_the_last_model_once_a_round() -> None:
    told = Told()
    told.take_turn(becomes=9.0)
    assert served(told) == [((4, 0), 1, 9.0)]
    for _ in range(3):
        told.hear(4, 2, Rejoin())
    assert served(told) == [((4,), 1, 9.0)]
    told.hear(0, 2, Rejoin())
    assert served(told) == [((0,), 1, 9.0)]
    told.take_turn(becomes=8.0)
    assert served(told) == [((4, 0), 2, 8.0)]
    told.hear(4, 3, Rejoin())
    assert served(told) == [((4,), 2, 8.0)]


def test_others_that_return_get_nothing() -> None:
    told = Told()
    told.take_turn()
    told.sent.clear()
    for other in (1, 2, 3):
        told.hear(other, 2, Rejoin())
    assert not told.sent


def test_who_has_sent_nothing_yet_serves_nobody() -> None:
    told = Told()
    told.hear(4, 1, Rejoin())
    assert not told.sent


def test_once_a_later_number_is_used_nobody_is_served() -> None:
    """A node of several rings that has sent its average since: numbers only ever increase."""
    inbox = joined(Numbering(1, joined=True))
    inbox.end_turn(1, now=1.0)
    assert [send.to for send in heard(inbox, Rejoin())] == [(4,)]
    inbox.state.served.clear()
    inbox.state.number = inbox.numbering.aggregation(1)
    assert heard(inbox, Rejoin()) == []


def joined(numbering: Numbering) -> Inbox:
    return Inbox(plain_node(3, COMPUTE, ring=Ring(range(5))), numbering)


def heard(inbox: Inbox, body: Rejoin) -> list[Send]:
    driver = Driver(inbox.receive(9.0, None, step=0))
    sent = []
    for request in driver:
        driver.answer = Arrival(4, 2, body, 2.0) if isinstance(request, Receive) else 2.0
        sent += [request] if isinstance(request, Send) else []
    return sent


def test_in_the_last_lap_models_go_only_to_those_whose_turn_is_to_come() -> None:
    inbox = joined(Numbering(2, joined=True))
    assert [inbox.receivers(k) for k in (1, 2, 3, 4)] == [(4, 0), (4,), (4, 0), (4,)]


# -- restarts ------------------------------------------------------------------------------------


def test_after_a_restart_a_turn_that_was_taken_is_not_taken_again() -> None:
    told = Told()
    told.hear(2, 1, 10.0)
    told.take_turn()
    again = told.restarted()
    again.hear(2, 1, 20.0)
    assert first(again) == [10.0, 0.0]


def test_after_a_restart_what_came_early_is_still_there() -> None:
    told = Told()
    told.hear(2, 2, 10.0)
    told.take_turn()
    assert first(told.restarted()) == [10.0, 0.0]


def test_after_a_restart_nobody_is_served_twice() -> None:
    told = Told()
    told.take_turn()
    told.hear(4, 2, Rejoin())
    again = told.restarted()
    again.hear(4, 2, Rejoin())
    assert not again.sent


def counting(candidates: Candidates) -> RuleGenerator:
    """A rule that knows how often it was asked, and says so by the model that it goes on from."""
    yield from ()
    times = candidates.state.get("times", 0) + 1
    model = torch.tensor([float(times)])
    return Choice(model, Selection(candidates.models, 0), {"times": times})


def test_after_a_restart_rule_and_optimiser_remember_what_they_did() -> None:
    told = Told(rule=counting)
    told.take_turn()
    told.trained[0].memory["optimizer.steps"] = 5  # as an optimiser does, before the turn ends
    told.take_turn()
    again = told.restarted(rule=counting)
    again.take_turn()
    assert float(tensor_of(again.trained[0].model)) == 3.0
    assert again.trained[0].memory == {"optimizer.steps": 5}


def test_ones_own_model_is_scored_while_one_waits() -> None:
    """For a rule that says so, on the batch of the turn that comes; in it nothing is asked."""
    seen: list[Losses] = []

    @states(scores_own=True)
    def careful(candidates: Candidates) -> RuleGenerator:
        seen.append((yield from candidates.score_own()))
        chosen = Selection(candidates.models, 0)
        return Choice(chosen, chosen)

    told = Told(rule=partial(careful))
    for k, own in ((1, 0.0), (2, 9.0)):
        assert isinstance(told.request, Score)
        assert (float(told.request.model), int(told.request.batch.indices[0])) == (
            own,
            OF_ROUND * k,
        )
        scored = Losses(torch.tensor([float(k)]))
        told.request = told._go_on(scored)
        assert isinstance(told.request, Receive)
        told.hear(1, k, 1.0, losses=0.5)
        told.hear(2, k, 2.0, losses=0.5)
        told.take_turn(becomes=9.0)
        assert seen[-1] is scored
