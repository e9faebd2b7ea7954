"""In the simulator's order: for comparisons of real peers with it, bit for bit.

On a network a model of the last but one predecessor may arrive after that of the last, which was
made from it.  A node then takes its turn with what it has, as it should; the simulator, whose links
are all alike, never sees this.  A twin waits for it.
"""

from collections.abc import Callable

from basil.protocol.numbering import Numbering
from basil.protocol.requests import Arrival
from basil.topology import Ring


def in_ring_order(
    ring: Ring, node: int, reach: int, given: dict[int, int], numbering: Numbering
) -> Callable[[Arrival], bool]:
    """Of an arrival: is a predecessor's model missing that was sent before it?

    `given`: the latest number of each sender that the protocol has been given.  What other rings
    send is waited for by the protocol itself.
    """
    predecessors = ring.behind(node, reach)
    last = ring.order[-1]

    def lap(number: int) -> int:
        """The latest round of the ring up to this number."""
        k, _ = numbering.stage(number)
        return numbering.ring_round(number) or numbering.last_lap(k)

    def hold(arrival: Arrival) -> bool:
        k = numbering.ring_round(arrival.round)
        if k is None or arrival.sender not in ring.position:
            return False
        # Rings that are joined begin anew in every global round: nothing of the last lap counts.
        first = numbering.last_lap(numbering.global_round(k) - 1) + 1 if numbering.joined else 1
        step = ring.step(k, arrival.sender)
        for other in predecessors:
            earlier = step - ring.distance(other, arrival.sender)
            spoke = other in given and ring.step(lap(given[other]), other) >= earlier
            begun = earlier > ring.step(first - 1, last)
            if other != arrival.sender and begun and not spoke:
                return True
        return False

    return hold
