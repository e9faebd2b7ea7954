"""A Byzantine node: an honest protocol whose Sends are rewritten on their way out.

It wraps any protocol without knowing it.  So every scheme meets every attack, and a Byzantine node
is visited in its turn like the others (Algorithm 1, line 13).
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from basil.attack.rehearsal import Rehearsal
from basil.attack.view import NO_SYMMETRIES, Attack, Bench, Lie, Numbers, View
from basil.learning.layout import Layout
from basil.learning.pool import Batch
from basil.learning.promises import Losses, Selection, tensor_of
from basil.learning.symmetry import Symmetries
from basil.protocol.drive import Driver
from basil.protocol.node import Node
from basil.protocol.numbering import STAGES, Numbering
from basil.protocol.requests import (
    Arrival,
    Checkpoint,
    Observe,
    Pretend,
    Protocol,
    Receive,
    Record,
    Score,
    ScoreAll,
    Select,
    Send,
    Train,
)


def _no_numbers() -> Numbers:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class ArmedAttack:
    """An attack with its options, and when it is carried out.

    Byzantine nodes lie in round `start` and in each `every`-th after it, and there in these
    `stages`; in the others they send what an honest node would.
    """

    attack: Attack
    options: Mapping[str, Any] = field(default_factory=dict)
    start: int = 1
    every: int = 1
    stages: Collection[str] = STAGES

    def lies_in(self, k: int) -> bool:
        return lies_in(k, self.start, self.every)


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What a Byzantine node knows besides what its own protocol is told; see `View` and `Bench`.

    `received` and `private`: its samples from others and those it kept, if data was shared.
    """

    layout: Layout
    seed: int = 0  # of the run
    shared: dict[str, Any] = field(default_factory=dict)
    colluders: frozenset[int] = frozenset()
    weights: Callable[[int], Mapping[int, float]] = lambda receiver: {}
    rehearsal: Rehearsal | None = None  # on a graph
    received: Numbers = field(default_factory=_no_numbers)
    private: Numbers = field(default_factory=_no_numbers)
    numbering: Numbering = field(default_factory=Numbering)
    symmetries: Symmetries = NO_SYMMETRIES


def adversary(
    node: Node, scheme: Callable[[Node], Protocol], armed: ArmedAttack, known: Knowledge
) -> Protocol:
    """Run the scheme for this node, and send what the attack makes of its models."""
    attack, options = armed.attack, armed.options

    def lies(at: tuple[int, str]) -> bool:
        k, stage = at
        return armed.lies_in(k) and stage in armed.stages

    saved = node.state
    memory: dict[str, Any] = {} if saved is None else saved["attack"]
    chosen: Tensor | Selection = node.initial_model if saved is None else saved["chosen"]
    k = 1 if saved is None else int(saved["round"])  # the round that this node is in
    # A protocol records its turn, sends, and keeps a checkpoint, all in one moment: who resumes a
    # run relies on that.  So a record waits while the lie that follows it is being tried out.
    held: list[Record] = []
    # Who lies in some stages only needs an honest model for the others.
    needs_none = not attack.trains and set(STAGES) <= set(armed.stages)
    lying = armed.lies_in(k)
    inner = Driver(scheme(node if saved is None else replace(node, state=saved["honest"])))
    for request in inner:
        answer: Any = None
        if held and not isinstance(request, Send):
            yield from held
            held = []
        idle = lying and needs_none
        match request:
            case Receive(score_on=Batch() as batch) if idle:
                answer = yield Receive(request.until, batch, pretend=True)
                if isinstance(answer, Arrival) and isinstance(answer.body, Tensor):
                    losses = _no_losses(len(batch), node.initial_model.device)
                    answer = Arrival(answer.sender, answer.round, answer.body, answer.time, losses)
            case Train():
                chosen = request.model
                passes = [(request.batches, request.rate)]
                if lying and attack.work:
                    bench = Bench(node, k, request, known.received, known.private, known.seed)
                    passes = attack.work(bench, **options)
                answer = request.model
                for batches, rate in passes:
                    request = replace(request, model=answer, batches=batches, rate=rate)
                    answer = tensor_of(answer) if idle else (yield request)
                    if idle:
                        yield Pretend(request, attack.blind)
            case Select() if idle:  # a node that will lie anyway does not compare
                answer = Selection([*request.models, request.own], 0)
            case Score() if idle:
                yield Pretend(request, attack.blind)
                answer = _no_losses(len(request.batch), node.initial_model.device)
            case ScoreAll() if idle:
                yield Pretend(request, attack.blind)
                shape = len(request.models), len(request.batch)
                answer = Losses(request.models[0].new_zeros(shape))
            case Send(body=Tensor() as honest) if lies(known.numbering.stage(request.round)):
                benign = (yield Observe()) if attack.omniscient else None
                view = View(
                    node=node.id,
                    round=request.round,
                    selected=chosen,
                    honest=honest,
                    layout=known.layout,
                    symmetries=known.symmetries,
                    spare=partial(_spare, node, request.round),
                    lap=node.lap,
                    receivers=request.to,
                    colluders=known.colluders,
                    weights=known.weights,
                    seed=known.seed,
                    state=memory,
                    shared=known.shared,
                    benign=benign,
                    **_rehearsal(known, request.round),
                )
                lie = yield from attack.lie(view, **options)
                yield from held
                held = []
                for send in _sends(request, lie):
                    answer = yield send  # all at one moment: each is answered with the same time
            case Record():
                held.append(request)
            case Checkpoint():
                k = request.round
                lying = armed.lies_in(k)
                state = partial(_state, k, chosen, memory.copy(), request.state)
                answer = yield replace(request, state=state)
            case _:
                yield from held  # before an honest Send
                held = []
                answer = yield request
        inner.answer = answer
    yield from held


def _sends(honest: Send, lie: Lie) -> Iterator[Send]:
    """What goes out in place of the honest Send; who is not in a mapping gets nothing."""
    if lie is None:  # a Send to nobody, since the protocol wants to know the time
        yield replace(honest, to=())
    elif isinstance(lie, Tensor):
        yield replace(honest, body=lie)
    else:
        named = [receiver for receiver in honest.to if receiver in lie]
        for receiver in named:
            yield replace(honest, to=(receiver,), body=lie[receiver])
        if not named:
            yield replace(honest, to=())


def _rehearsal(known: Knowledge, k: int) -> dict[str, Callable[..., Any]]:
    """What can be found out about those whose rule needs no samples."""
    rehearsal = known.rehearsal
    if rehearsal is None:
        return {}
    return {"shadows": rehearsal.shadows, "outcome": partial(rehearsal.outcome, k)}


def lies_in(k: int, start: int, every: int) -> bool:
    """Is round k one in which Byzantine nodes lie?"""
    return k >= start and (k - start) % every == 0


def _spare(node: Node, number: int) -> Batch:
    """Of a round that will never come."""
    return node.draw(node.on_rings.laps * node.rounds + number)[0]


@cache
def _no_losses(length: int, device: torch.device) -> Losses:
    """Nobody will go by them; a rule may keep them, next to those of honest rounds."""
    return Losses(torch.zeros(length, device=device))


def _state(
    k: int,
    chosen: Tensor | Selection,
    memory: dict[str, Any],
    honest: Callable[[], dict[str, Any]],
) -> dict[str, Any]:
    return {"round": k, "chosen": tensor_of(chosen), "attack": memory, "honest": honest()}
