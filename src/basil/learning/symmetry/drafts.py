"""What a search for symmetries knows of units on its way, and makes of them in the end."""

from dataclasses import dataclass, field
from operator import attrgetter

from basil.learning.layout import Slot
from basil.learning.symmetry.parts import Pair, Part, Units


@dataclass(eq=False)
class Draft:
    """Units of which not all is known yet."""

    name: str
    size: int
    number: int
    gauges: list[Part] = field(default_factory=list)
    makes: list[Part] = field(default_factory=list)
    squares: list[Part] = field(default_factory=list)
    reads: list[Part] = field(default_factory=list)
    scales: bool = True  # can each unit be scaled?
    normal: bool = False  # are they what a normalisation makes?
    whole: bool = False  # only all of them together
    orders: bool = True  # can they stand in another order?
    linear: bool = False  # is there nothing but linear maps between what makes and what reads them?
    follows: list["Draft"] = field(default_factory=list)  # units whose order these have
    merged: "Draft | None" = None

    def root(self) -> "Draft":
        return self if self.merged is None else self.merged.root()


@dataclass(frozen=True)
class Flow:
    """A tensor inside the network: which axis the units lie on, and how many entries each has."""

    draft: Draft | None = None  # None: of the input, or not understood
    axis: int = 1
    repeat: int = 1


def units_of(drafts: list[Draft], whole: bool = False) -> Units:
    makes, squares, reads = (
        tuple(part for draft in drafts for part in parts(draft))
        for parts in (attrgetter("makes"), attrgetter("squares"), attrgetter("reads"))
    )
    return Units(drafts[0].name, tuple(drafts[0].gauges), makes, squares, reads, whole)


def in_one_order(roots: list[Draft]) -> list[list[Draft]]:
    """Units, and those that have to stand in the same order."""
    classes: dict[Draft, list[Draft]] = {draft: [draft] for draft in roots}
    for draft in roots:
        for other in draft.follows:
            one, two = classes[draft], classes.get(other.root(), [])
            if one is not two:
                one.extend(two)
                for each in two:
                    classes[each] = one
    unique = {id(some): some for some in classes.values()}
    return [sorted(some, key=lambda d: d.number) for some in unique.values()]


def is_pair(draft: Draft) -> bool:
    """Made by one linear map, read by others, with nothing between: any basis will do."""
    fan_in = sum(part.after for part in draft.makes)
    return (
        draft.linear
        and draft.scales
        and bool(draft.reads)
        and all(part.after == 1 for part in draft.reads)
        and all(part.before == 1 for part in draft.makes)
        and draft.size <= fan_in
        and not (draft.whole or draft.squares)
    )


def heads_of(
    name: str, E: int, heads: int, weight: Slot, bias: Slot | None, out: Slot | None
) -> list[Pair]:
    """For each head of an attention queries with keys, and values with what reads them."""
    d, pairs = E // heads, []
    for h in range(heads):
        rows = [
            (
                Part(weight.start + (i * E + h * d) * E, 1, d, E),
                *([] if bias is None else [Part(bias.start + i * E + h * d, 1, d, 1)]),
            )
            for i in range(3)
        ]
        pairs.append(Pair(f"{name}.q·k[{h}]", rows[0], meets=rows[1]))
        if out is not None:
            reads = (Part(out.start, E, d, 1, width=E, skip=h * d),)
            pairs.append(Pair(f"{name}.v·o[{h}]", rows[2], reads))
    return pairs
