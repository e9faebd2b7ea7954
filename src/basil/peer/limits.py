"""Every bound that a peer sets to what others can make it do, with its default.

docs/operate/security.md lists them; a test compares that list with this class.
"""

from dataclasses import dataclass

MIB = 1 << 20

# What all nodes must agree on; everything else is each node's own affair.
CHUNK = MIB  # bytes of a body in one gRPC message
HEADER = MIB  # bytes of a safetensors header, at most
MANIFEST = 4096  # bytes of a manifest, at most
MESSAGE = CHUNK + 64 * 1024  # bytes of a gRPC message, at most


@dataclass(frozen=True)
class Limits:
    """Seconds, bytes and counts.  `transfers` None: as many as there are other members."""

    # -- one transfer
    grace: float = 10.0  # seconds that any transfer may take, whatever its size
    slowest: float = 262_144.0  # bytes a second below which a transfer is given up
    stall: float = 10.0  # seconds without a new chunk, on either side

    # -- one sender
    messages: float = 100.0  # transfers a second that a member may begin, on average
    messages_burst: int = 200  # and at once
    waiting: int = 2  # messages of one sender and kind that the node has not taken yet
    asks: float = 20.0  # questions a second that a member may put, on average
    asks_burst: int = 60  # and at once
    asking: int = 2  # questions of one member that are heard at the same time
    notes: float = 5.0  # notes (rejoin, absent) a second that a member may send, on average
    notes_burst: int = 10  # and at once
    arrivals: int = 4  # models' worth of bytes that wait on the disk for the next checkpoint
    stages: int = 64  # stages of a run in which a member may speak

    # -- all of them
    transfers: int | None = None  # bodies on their way in at the same time
    window: int = MIB // 4  # bytes of a call that come in before anybody takes them
    question: int = MIB // 4  # bytes of a question
    connections: int = 64  # incoming connections, times the number of members
    handshake: float = 5.0  # seconds for a TLS handshake
    compared: int = 16  # rounds for which others' manifests are kept for comparison

    # -- sending
    outbox: int = 2  # messages that wait for one receiver; a newer one displaces the oldest
    give_up: float = 60.0  # seconds after which a message that could not be delivered is dropped
    backoff: float = 0.05  # seconds before the first retry; doubles
    backoff_most: float = 1.0  # up to this
    keepalive: float = 4.0  # seconds between pings on a connection
    keepalive_answer: float = 4.0  # seconds for the answer to one

    def deadline(self, size: int) -> float:
        """Seconds that a transfer of so many bytes may take."""
        return self.grace + size / self.slowest
