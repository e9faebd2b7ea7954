"""What an adversary can see when it decides what to send, and what it must declare."""

import functools
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, TypedDict, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from basil import rng
from basil.learning.layout import Layout
from basil.learning.pool import Batch
from basil.learning.promises import Losses, Selection, tensor_of
from basil.learning.symmetry import Symmetries
from basil.protocol.node import Node
from basil.protocol.requests import Score, ScoreAll, Train

Numbers: TypeAlias = NDArray[np.int64]
Lie: TypeAlias = Tensor | Mapping[int, Tensor] | None
"""What goes out: one vector to all receivers, one for each of those named, or nothing."""
Outcome: TypeAlias = Callable[[int, Tensor, Mapping[int, Tensor]], Tensor | None]
Trial: TypeAlias = Generator[Score | ScoreAll, Losses, Lie]
"""A lie that is tried out first: it asks for losses, like a protocol, and they take their time."""


NO_SYMMETRIES = Symmetries()


@dataclass(frozen=True, eq=False)
class View:
    """A Byzantine node's knowledge in one turn, cut down to what its attack has declared."""

    node: int
    round: int
    selected: Tensor | Selection  # x̄: the model that the protocol went on from, see `chosen`
    honest: Tensor  # what the protocol wanted to send
    # An attack that does not train compares and improves nothing either: both of the above are
    # then the nearest stored model, whatever it is worth.
    layout: Layout
    # A batch of its own samples, drawn as its receivers draw theirs: what they may see of a model.
    # No turn has it.  On this round's the honest model was trained, and every shift would show.
    spare: Callable[[], Batch]
    lap: int  # turns from one of this node to its next: the size of its ring
    receivers: tuple[int, ...]  # to whom the protocol wanted to send
    colluders: frozenset[int]  # all Byzantine nodes: they know each other
    # Who hears from whom, and how much it counts, is no secret: receiver -> sender -> W_jk.
    weights: Callable[[int], Mapping[int, float]]
    seed: int  # of the run
    state: dict[str, Any]  # the attacker's own memory from turn to turn
    shared: dict[str, Any]  # what colluders on one machine compute once; lost without harm
    # Omniscient attacks only: what each benign node sent last (x⁰ before it has sent anything).
    benign: Mapping[int, Tensor] | None
    # What receiver j would make of its own model and those that its neighbours send it; None where
    # nobody can tell.  And shorter vectors for which that is the same; see `Rehearsal`.
    outcome: Outcome = lambda j, own, sent: None
    shadows: Callable[[Iterable[Tensor]], Tensor] = lambda models: torch.stack(list(models))
    # What can be done to the network's weights without a change of what it computes.
    symmetries: Symmetries = NO_SYMMETRIES

    @functools.cached_property
    def generator(self) -> torch.Generator:
        """For vectors."""
        name = ("attack", self.node, self.round)
        return rng.torch_stream(self.seed, *name, device=self.honest.device)

    @functools.cached_property
    def rng(self) -> np.random.Generator:
        """For decisions."""
        return rng.stream(self.seed, "attack", self.node, self.round, "decisions")

    @functools.cached_property
    def common(self) -> np.random.Generator:
        """For what all colluders decide alike, once for the whole run."""
        return rng.stream(self.seed, "attack", "colluders")

    @functools.cached_property
    def chosen(self) -> Tensor:
        """x̄ as a vector: on a GPU that costs a little, so only for those who need it."""
        return tensor_of(self.selected)


@dataclass(frozen=True, eq=False)
class Bench:
    """What a Byzantine node may work with in one turn, if it does not train as it should."""

    node: Node
    round: int
    train: Train  # what the protocol asked for
    received: Numbers  # others' samples, from the data sharing
    private: Numbers  # its own that it did not share
    seed: int

    @functools.cached_property
    def rng(self) -> np.random.Generator:
        return rng.stream(self.seed, "attack", self.node.id, self.round, "work")


Stage: TypeAlias = tuple[tuple[Batch, ...], float]
Work: TypeAlias = Callable[..., list[Stage]]
"""(bench, *, the attack's options) -> batches and learning rate, one stage after the other."""


@dataclass(eq=False)
class Attack:
    """From a view to what is sent instead, and what is to be known of it.

    The function returns the lie, or is a generator that tries it out first.
    """

    takes: ClassVar[tuple[str, ...]] = ("view",)

    function: Callable[..., Any]
    omniscient: bool = False  # it sees what all benign nodes sent last, else its own state only
    trains: bool = False  # it needs its node's honest update, else only the time of that passes
    blind: bool = False  # it looks at no model's values: on a GPU they may not be there yet
    start: int = 1  # the round in which it begins
    work: Work | None = None  # what it trains on instead; it takes the time that it takes
    needs_sharing: bool = False  # it uses samples of others, which only data sharing gives it

    def __post_init__(self) -> None:
        functools.update_wrapper(self, self.function)

    def __call__(self, view: View, **options: Any) -> Lie | Trial:
        made: Lie | Trial = self.function(view, **options)
        return made

    def lie(self, view: View, **options: Any) -> Trial:
        """The same for both kinds: what it asks for, and in the end what goes out."""
        made = self(view, **options)
        return (yield from made) if isinstance(made, Generator) else made


class Declared(TypedDict, total=False):
    """What can be said of an attack: the fields of `Attack` besides its function."""

    omniscient: bool
    trains: bool
    blind: bool
    start: int
    work: Work | None
    needs_sharing: bool


def declares(**declared: Unpack[Declared]) -> Callable[[Callable[..., Lie | Trial]], Attack]:
    """Make an `Attack` of a function; the keywords are those of its fields."""
    return lambda function: Attack(function, **declared)
