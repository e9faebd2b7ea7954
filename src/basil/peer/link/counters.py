"""What was counted about each peer: for the metrics, the table and the curious."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from basil.host import host


@dataclass
class Tally:
    """About one peer.  `refused` is ours of theirs, `rejected` theirs of ours, by reason."""

    sent: int = 0  # messages that it acknowledged
    received: int = 0  # messages taken from it
    duplicates: int = 0  # messages that it sent again, which is harmless
    late: int = 0  # messages of a round that is over
    bytes_sent: int = 0
    bytes_received: int = 0
    retries: int = 0
    dropped: int = 0  # messages to it that were given up, or displaced by newer ones
    failures: int = 0  # attempts to send that failed on this machine, for want of a thread or so
    questions: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)


class Tallies(dict[int, Tally]):
    """One for each peer; counted from many threads."""

    def __init__(self, nodes: tuple[int, ...] = ()) -> None:
        super().__init__({node: Tally() for node in nodes})
        self.strangers: Counter[str] = Counter()  # refusals of those who are no members
        self._lock = host.lock()

    def add(self, node: int, **counts: int) -> None:
        with self._lock:
            tally = self._of(node)
            for name, count in counts.items():
                setattr(tally, name, getattr(tally, name) + count)

    def refuse(self, node: int | None, reason: str) -> None:
        with self._lock:
            counter = self.strangers if node is None else self._of(node).refused
            counter[reason] += 1

    def reject(self, node: int, reason: str) -> None:
        with self._lock:
            self._of(node).rejected[reason] += 1

    def _of(self, node: int) -> Tally:
        if node not in self:  # a member that was added since
            self[node] = Tally()
        return self[node]

    def totals(self) -> tuple[int, int]:
        """Messages of members that were not taken, and failures to send."""
        with self._lock:
            refused = sum(t.refused.total() for t in self.values())
            return refused, sum(t.failures for t in self.values())

    def snapshot(self) -> dict[int, dict[str, Any]]:
        """All counts as plain values."""
        with self._lock:
            return {
                node: {k: dict(v) if isinstance(v, Counter) else v for k, v in vars(t).items()}
                for node, t in self.items()
            }
