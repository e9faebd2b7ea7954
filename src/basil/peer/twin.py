"""In the simulator's order: for comparisons of real peers with it, bit for bit.

On a network a model of the last but one predecessor may arrive after that of the last, which was
made from it.  A node then takes its turn with what it has, as it should; the simulator, whose links
are all alike, never sees this.  A twin waits for it.
"""

from collections.abc import Callable

from basil.protocol.requests import Arrival
from basil.topology import Ring


def in_ring_order(
    ring: Ring, node: int, reach: int, given: dict[int, int]
) -> Callable[[Arrival], bool]:
    """Of an arrival: is a predecessor's model missing that was sent before it?

    `given`: the latest round of each sender that the protocol has been given.
    """
    predecessors = ring.behind(node, reach)
    first = ring.step(1, ring.order[0])

    def hold(arrival: Arrival) -> bool:
        step = ring.step(arrival.round, arrival.sender)
        for other in predecessors:
            earlier = step - ring.distance(other, arrival.sender)
            spoke = other in given and ring.step(given[other], other) >= earlier
            if other != arrival.sender and earlier >= first and not spoke:
                return True
        return False

    return hold
