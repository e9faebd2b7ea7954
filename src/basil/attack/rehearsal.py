"""What a receiver would make of a lie: its own protocol, run for a part of one round."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from basil.learning.pool import Batch
from basil.protocol.node import Node
from basil.protocol.requests import (
    Arrival,
    Checkpoint,
    Combine,
    Fetch,
    Missing,
    Protocol,
    Receive,
    Send,
)


def _no_samples(k: int) -> tuple[Batch, ...]:
    return (Batch(np.zeros(0, np.int64)),)


def outcome(
    node: Node, scheme: Callable[[Node], Protocol], k: int, own: Tensor, sent: Mapping[int, Tensor]
) -> Tensor | None:
    """The average that a node on a graph makes in round k of its own model and what it is sent.

    None if it makes none, or asks for a loss first: nobody else knows its samples.
    """
    place = replace(node, initial_model=own, rejoin_round=k, state=None, draw=_no_samples)
    mail = [Arrival(j, k, body, 0.0) for j, body in sent.items()]
    protocol = scheme(place)
    request = next(protocol)
    answer: Any = None
    made: Any = None
    while True:
        match request:
            case Receive():
                answer = mail.pop(0) if mail else Missing(request.until)
            case Combine():
                answer = made = request.answer()
            case Send() | Checkpoint() | Fetch():
                answer = 0.0
            case _:  # it trains, or scores
                return made if isinstance(made, Tensor) and made.shape == own.shape else None
        request = protocol.send(answer)
