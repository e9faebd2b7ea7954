"""To which round a message belongs, and whether it was due before a node's own turn."""

from basil.experiment.participants import Participants
from basil.protocol.numbering import Numbering


class Rounds:
    """As one node counts them."""

    def __init__(self, who: Participants, numbering: Numbering, node: int) -> None:
        self._who, self._numbering, self._node = who, numbering, node

    def of(self, number: int) -> int:
        """By the number that the message carries."""
        return self._numbering.stage(number)[0] if number > 0 else 0

    def was_due(self, sender: int, number: int, mine: int) -> bool:
        """Before this node's turn in round `mine`?"""
        if self._who.graph is not None:
            return number <= mine
        if self._who.recipe.groups > 1:
            return self.of(number) < mine
        ring = self._who.ring
        return sender in ring.position and ring.step(number, sender) < ring.step(mine, self._node)
