"""A Byzantine node: an honest protocol whose Sends are rewritten on their way out.

It wraps any protocol without knowing it.  So every scheme meets every attack, and a Byzantine node
is visited in its turn like the others (Algorithm 1, line 13).
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from basil.attack.view import Attack, Bench, Lie, Numbers, View
from basil.learning.layout import Layout
from basil.learning.pool import Batch
from basil.learning.promises import Losses, Selection, tensor_of
from basil.protocol.calendar import STAGES, Calendar
from basil.protocol.node import Node
from basil.protocol.requests import (
    Arrival,
    Checkpoint,
    Observe,
    Pretend,
    Protocol,
    Receive,
    Score,
    ScoreAll,
    Select,
    Send,
    Train,
)

NOTHING: Numbers = np.zeros(0, np.int64)


def adversary(
    node: Node,
    scheme: Callable[[Node], Protocol],
    attack: Attack,
    options: dict[str, Any],
    start: int,
    layout: Layout,
    seed: int,
    shared: dict[str, Any],
    colluders: frozenset[int] = frozenset(),
    weights: Callable[[int], Mapping[int, float]] = lambda receiver: {},
    received: Numbers = NOTHING,
    private: Numbers = NOTHING,
    calendar: Calendar | None = None,
    stages: Collection[str] = STAGES,
) -> Protocol:
    """Run the scheme for this node, and send what the attack makes of its models.

    `received` and `private`: its samples from others and those it kept, if data was shared.
    `stages`: those in which it lies; in the others it sends what an honest node would.
    """
    calendar = calendar or Calendar()

    def lies(at: tuple[int, str]) -> bool:
        k, stage = at
        return k >= start and stage in stages

    saved = node.state
    memory: dict[str, Any] = {} if saved is None else saved["attack"]
    inner = scheme(node if saved is None else replace(node, state=saved["honest"]))
    chosen: Tensor | Selection = node.initial_model if saved is None else saved["chosen"]
    k = 1 if saved is None else int(saved["round"])  # the round that this node is in
    answer: Any = None
    while True:
        try:
            request = inner.send(answer)
        except StopIteration:
            return
        # Who lies in some stages only needs an honest model for the others.
        idle = k >= start and not attack.trains and set(STAGES) <= set(stages)
        match request:
            case Train():
                chosen = request.model
                passes = [(request.batches, request.rate)]
                if k >= start and attack.work:
                    bench = Bench(node, k, request, received, private, seed)
                    passes = attack.work(bench, **options)
                answer = request.model
                for batches, rate in passes:
                    request = replace(request, model=answer, batches=batches, rate=rate)
                    answer = tensor_of(answer) if idle else (yield request)
                    if idle:
                        yield Pretend(request)
            case Select() if idle:  # a node that will lie anyway does not compare
                answer = Selection([*request.models, request.own], 0)
            case Score() if idle:
                yield Pretend(request)
                answer = _no_losses(request.model, request.batch)
            case ScoreAll() if idle:
                yield Pretend(request)
                shape = len(request.models), len(request.batch)
                answer = Losses(request.models[0].new_zeros(shape))
            case Receive(score_on=Batch() as batch) if idle:
                answer = yield Receive(request.until)
                if isinstance(answer, Arrival) and isinstance(answer.body, Tensor):
                    yield Pretend(Score(answer.body, batch))
                    answer = replace(answer, losses=_no_losses(answer.body, batch))
            case Send(body=Tensor() as honest) if lies(calendar.stage(request.round)):
                view = View(
                    node=node.id,
                    round=request.round,
                    selected=chosen,
                    honest=honest,
                    layout=layout,
                    receivers=request.to,
                    colluders=colluders,
                    weights=weights,
                    seed=seed,
                    state=memory,
                    shared=shared,
                    benign=(yield Observe()) if attack.omniscient else None,
                )
                for send in _sends(request, attack(view, **options)):
                    answer = yield send  # all at one moment: each is answered with the same time
            case Checkpoint():
                k = request.round
                state = partial(_state, k, chosen, memory.copy(), request.state)
                answer = yield replace(request, state=state)
            case _:
                answer = yield request


def _sends(honest: Send, lie: Lie) -> Iterator[Send]:
    """What goes out in place of the honest Send; whoever a mapping does not name gets nothing."""
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


def _no_losses(model: Tensor, batch: Batch) -> Losses:
    """Nobody will look at them; a rule may still compute with them."""
    return Losses(model.new_zeros(len(batch)))


def _state(
    k: int,
    chosen: Tensor | Selection,
    memory: dict[str, Any],
    honest: Callable[[], dict[str, Any]],
) -> dict[str, Any]:
    return {"round": k, "chosen": tensor_of(chosen), "attack": memory, "honest": honest()}
