"""What a protocol may ask of the engine that runs it, and what it is answered.

A protocol is a generator for one node.  It owns no socket, clock, thread, device or random state:
it yields one of these requests and is resumed with the answer.  The simulator answers with a
virtual clock and one batch of work for all nodes that ask at the same moment; a peer on a real
network answers with its own machine.  Neither changes a line of the protocol.

Nobody changes a request or an answer once it is made.  (They are not declared frozen: that would
triple the time to make one, and a turn makes dozens.)
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch import Tensor

from basil.learning.pool import Batch
from basil.learning.promises import Argument, Losses, Pick, Selection, laid_out
from basil.protocol.numbering import RING
from basil.protocol.sharing.basket import Basket


@dataclass(frozen=True, slots=True)
class Rejoin:
    """The body of a note that says: I was away; send me your last model (Appendix C)."""


@dataclass(frozen=True, slots=True)
class Absent:
    """The body of a note that says: this node, my predecessor, did not pass on what it should."""

    node: int


Body: TypeAlias = Tensor | Rejoin | Basket | Absent
"""Schemes send models and Rejoin; data sharing, which is over before, sends the other two."""


@dataclass(slots=True, eq=False)
class Arrival:
    """What a node received, from whom (the engine vouches for that), and when.

    `losses`: of a model that was scored on its way in, as the `Receive` had asked.
    """

    sender: int
    round: int
    body: Body
    time: float
    losses: Losses | None = None


@dataclass(slots=True)
class Missing:
    """Nothing arrived before the deadline."""

    time: float


@dataclass(slots=True, eq=False)
class Send:
    """Multicast.  Answer: the time, as a float.  The sender does not wait for the delivery.

    announced: of a model only so many numbers travel, its sketch; who wants the model fetches it.
    """

    to: tuple[int, ...]
    round: int
    body: Body
    announced: int = 0


@dataclass(slots=True)
class Fetch:
    """So many models that were announced, of so many numbers.  Answer: None, when they are there.

    It is what they cost that is asked for here: their values came with the announcement.
    """

    count: int
    parameters: int


@dataclass(slots=True)
class Receive:
    """The next arrival.  Answer: an `Arrival`, or `Missing` once the deadline has passed.

    With `score_on` a model is scored on that batch before it is handed over, as by a `Score`.
    `pretend` (adversaries only): that takes its time, but nothing is computed, and no losses come.
    """

    until: float
    score_on: Batch | None = None
    pretend: bool = False


@dataclass(slots=True, eq=False)
class Score:
    """Loss of a model for each sample of a batch.

    Answer: `Losses`, a promise of a vector; +inf throughout if the model holds a value that is not
    finite, so that no selection rule has to look for such values itself.
    """

    model: Tensor
    batch: Batch


@dataclass(slots=True, eq=False)
class ScoreAll:
    """The same for several models on one batch.  Answer: `Losses`, a matrix [model, sample].

    It takes the time of as many evaluations; a GPU does them side by side.
    """

    models: Tensor  # [model, parameter]
    batch: Batch


@dataclass(slots=True, eq=False)
class Select:
    """One of the models by their losses, as `pick` decides.  Answer: a `Selection`, at once.

    Of models [candidate] and then one's own, which is selected if the pick has a loss that is not
    finite; its own losses may stand after the candidates'.  On a GPU it may be known only later
    which one it is; a `Train` takes it as it is.
    """

    models: list[Tensor]
    losses: list[Losses]
    own: Tensor
    pick: Pick


@dataclass(slots=True, eq=False)
class Train:
    """Local update, eq. (2): one step for each batch.  Answer: the new model.

    `key()` seeds what is random inside the network (dropout), where there is such a thing.
    `memory`: this node's; an optimiser finds its state there, and leaves it there.
    """

    model: Tensor | Selection
    batches: tuple[Batch, ...]
    rate: float
    key: Callable[[], int]
    memory: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Combine:
    """Arithmetic on whole models: distances and averages.  Answer: what `work(*args)` returns.

    A request, since it takes time: a distance to each of 40 neighbours costs more than an SGD step
    (Table III).  `distances` and `averages` say how many of them the work holds.

    With `args` the work is a function of these alone, to one tensor or several, in operations that
    never look at a value; the same function every time, or a partial of it.  A GPU then does it in
    one launch, for many rings at once.  Losses come as tensors; a list of models, of losses or of
    other tensors comes as one, a row for each.  `Rows` come as they are on a CPU, where the work
    may look at values.

    `unseen`: the answer goes into further requests, and nobody looks at a value of it before a
    `Train` that follows is answered.  Up to then it may be a promise: tensors yet to be filled.

    `makes_model`: the answer is a model to go on from, and is brought to canonical form as one that
    arrives is.
    """

    work: Callable[..., Any]
    distances: int = 0
    averages: int = 0
    args: tuple[Argument, ...] = ()
    unseen: bool = False
    makes_model: bool = False

    def answer(self) -> Any:
        """Here and now, by the plain path."""
        return self.work(*laid_out(self.args))


@dataclass(slots=True, eq=False)
class Record:
    """A node has made a choice, and (`last`) has finished a round with it.

    It went on from the model of senders[selected.index]; None is its own, or x⁰.  On a GPU that may
    not be known yet: a caller of `chosen` waits for it.  A scheme that averages goes on from
    no one's model: it leaves both out.  Where a round has several stages, there is a record for
    each choice, and one that ends the round.
    """

    round: int
    model: Tensor
    senders: tuple[int | None, ...] = ()
    selected: Selection | None = None
    stage: str = RING
    last: bool = True

    @property
    def chosen(self) -> int | None:
        return None if self.selected is None else self.senders[self.selected.index]


@dataclass(slots=True, eq=False)
class Checkpoint:
    """All that this node needs to go on from here; `round` and `stage` are what comes next.

    A state is made of dicts, lists, numbers, strings, None and tensors.  A protocol asks for a
    checkpoint right after each `Send`, at the same moment: so a node that starts again from its
    checkpoint never sends anything twice.  Few checkpoints are ever written down, so `state` is a
    function that makes the state of this moment whenever it is called.
    """

    round: int
    state: Callable[[], dict[str, Any]]
    stage: str = RING


@dataclass(slots=True, eq=False)
class Observe:
    """Asked by adversaries only.  Answer: what each benign node sent last, a dict node -> model."""


@dataclass(slots=True, eq=False)
class Pretend:
    """Asked by adversaries only: take the time that the request would, and compute nothing.

    `unseen`: nor does anybody look at a model's values then.
    """

    request: Score | ScoreAll | Train
    unseen: bool = False


Request: TypeAlias = (
    Send
    | Fetch
    | Receive
    | Score
    | ScoreAll
    | Select
    | Train
    | Combine
    | Record
    | Checkpoint
    | Observe
    | Pretend
)
Protocol: TypeAlias = Generator[Request, Any, None]
