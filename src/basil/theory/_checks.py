"""What a ring can be: the refusals that every formula of this folder shares."""

from basil.errors import UserError


def ring(nodes: int, byzantine: int, connectivity: int) -> None:
    """N ≥ 2, 0 ≤ b < N and 0 ≤ S ≤ N − 1."""
    population(nodes, byzantine)
    predecessors(nodes, connectivity)


def population(nodes: int, byzantine: int) -> None:
    if nodes < 2:
        raise UserError(f"nodes = {nodes}: a ring has at least 2 nodes")
    if not 0 <= byzantine < nodes:
        raise UserError(
            f"byzantine = {byzantine}: of {nodes} nodes, 0 to {nodes - 1} can be Byzantine, "
            "so that at least one is benign"
        )


def predecessors(nodes: int, connectivity: int) -> None:
    if not 0 <= connectivity < nodes:
        raise UserError(
            f"connectivity = {connectivity}: a node on a ring of {nodes} has "
            f"0 to {nodes - 1} predecessors to listen to"
        )


def group_size(nodes: int, groups: int) -> int:
    """n = N/G; the paper splits the nodes into equal groups, and so do its formulas."""
    if not 1 <= groups <= nodes:
        raise UserError(f"groups = {groups}: {nodes} nodes form 1 to {nodes} groups")
    if nodes % groups:
        raise UserError(
            f"groups = {groups}: {nodes} nodes do not split into equal groups; "
            f"choose a divisor of {nodes}"
        )
    return nodes // groups


def at_least(name: str, value: float, least: int) -> None:
    """Refuses what is smaller than `least`, infinite or not a number."""
    if not least <= value < float("inf"):
        raise UserError(f"{name} = {value}: it must be a finite number, {least} or more")


def share(name: str, value: float) -> None:
    """A part of a whole: more than none of it, at most all of it."""
    if not 0 < value <= 1:
        raise UserError(f"{name} = {value}: it must be more than 0 and at most 1")


def bandwidth(megabits_per_second: float) -> None:
    if not megabits_per_second > 0:  # so put, it refuses NaN too
        raise UserError(f"bandwidth = {megabits_per_second} Mb/s: a link needs a bandwidth above 0")
