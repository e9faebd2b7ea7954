"""What a Byzantine node may do to the baskets that it should pass on.

As with models, an honest protocol runs inside and what it sends is rewritten on its way out.
"""

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any, TypeVar

from basil.protocol.drive import Driver
from basil.protocol.requests import Arrival, Request, Send
from basil.protocol.sharing.basket import Basket
from basil.table import Table

Meddle = Callable[[Basket, Basket], Basket | None]
"""(what it should send, what it received last) -> what it sends; None: nothing."""
T = TypeVar("T")


def honest(basket: Basket, received: Basket) -> Basket | None:
    """Keeps to the protocol."""
    return basket


def silent(basket: Basket, received: Basket) -> Basket | None:
    """Drops out: passes nothing on."""
    return None


def too_much(basket: Basket, received: Basket) -> Basket | None:
    """Puts everything in twice."""
    return basket.plus(basket)


def too_little(basket: Basket, received: Basket) -> Basket | None:
    """Passes on every second sample only."""
    return basket.only(slice(0, None, 2))


def garbage(basket: Basket, received: Basket) -> Basket | None:
    """Inverts every bit."""
    return Basket(~basket.rows, basket.bits)


def keeps_in(basket: Basket, received: Basket) -> Basket | None:
    """Adds its next batch, or dummies, without taking out its last."""
    return basket.plus(received.without(basket))


FAULTS: Table[Meddle] = Table(
    "fault in sharing",
    {
        "none": honest,
        "silent": silent,
        "too-much": too_much,
        "too-little": too_little,
        "garbage": garbage,
        "keeps-in": keeps_in,
    },
    group="faults",
    takes=("basket", "received"),
)


def meddler(
    protocol: Generator[Request, Any, T], fault: Meddle, start: int
) -> Generator[Request, Any, T]:
    """Run the sharing for this node, and pass on what the fault makes of it from a round on."""
    received: Basket | None = None
    driver = Driver(protocol)
    for request in driver:
        if isinstance(request, Send) and isinstance(request.body, Basket):
            body, last = request.body, received or request.body.only(slice(0, 0))
            made = fault(body, last) if request.round >= start else body
            request = replace(request, to=()) if made is None else replace(request, body=made)
        driver.answer = answer = yield request
        if isinstance(answer, Arrival) and isinstance(answer.body, Basket):
            received = answer.body
    return driver.result
