"""A ring cut into smaller ones."""

from basil.errors import UserError


def divide(order: tuple[int, ...], groups: int) -> tuple[tuple[int, ...], ...]:
    """§IV-A, phase 1: cut the agreed order into G stretches; their sizes differ by one at most."""
    if not 1 <= groups <= len(order):
        raise UserError(f"groups = {groups}: {len(order)} nodes make 1 to {len(order)} groups")
    small, larger = divmod(len(order), groups)
    sizes = [small + (g < larger) for g in range(groups)]
    starts = [sum(sizes[:g]) for g in range(groups)]
    return tuple(order[at : at + size] for at, size in zip(starts, sizes, strict=True))
