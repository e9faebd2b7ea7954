"""Text for people: as wide as where it is read, with times in units that one can picture."""

import os
import sys
import textwrap
from collections.abc import Sequence
from typing import TextIO

GAP = "  "
LEAST = 16  # characters below which a column of sentences is no longer one
# From so many seconds on a time is given in this unit, of so many seconds.
UNITS = (
    (2 * 365.25 * 86400, 365.25 * 86400, "years"),
    (2 * 86400.0, 86400.0, "days"),
    (2 * 3600.0, 3600.0, "h"),
    (300.0, 60.0, "min"),
    (1.0, 1.0, "s"),
    (0.0, 1e-3, "ms"),
)


def duration(seconds: float, spread: float = 0.0) -> str:
    """6,737,498,162 s -> 213 years; with a spread over seeds, 3.20 ± 0.15 h."""
    unit, name = next((unit, name) for least, unit, name in UNITS if seconds >= least)
    value = seconds / unit
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    around = f" ± {spread / unit:,.{digits}f}" if spread else ""
    return f"{value:,.{digits}f}{around} {name}"


def amount(count: float) -> str:
    """12345678 -> 12 MB"""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def width(stream: TextIO | None = None) -> int | None:
    """Columns of the terminal; COLUMNS says otherwise.  None: a pipe or a file has no margin."""
    said = os.environ.get("COLUMNS", "")
    if said.isdigit() and int(said) > 0:
        return int(said)
    stream = stream or sys.stdout
    try:
        return os.get_terminal_size(stream.fileno()).columns if stream.isatty() else None
    except (OSError, ValueError):  # closed, or not one of the system's files
        return None


def wrapped(text: str, columns: int | None, hang: int = 0) -> str:
    """Broken between words; lines after the first are set in by `hang`."""
    return text if columns is None else "\n".join(_broken(text, columns, hang))


def paragraphs(text: str, columns: int | None) -> str:
    """Each paragraph wrapped by itself; of what is set in, a formula or a command, each line."""
    if columns is None:
        return text
    made = []
    for part in text.split("\n\n"):
        lines = part.split("\n") if part.startswith(" ") else [" ".join(part.split("\n"))]
        made.append("\n".join(wrapped(each, columns, _indent(each)) for each in lines))
    return "\n\n".join(made)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def aligned(
    rows: Sequence[Sequence[str]], columns: int | None, right: Sequence[int] = ()
) -> list[str]:
    """Lines with cells beneath each other, those of the columns `right` to the right.

    The last column is broken between words.  Where too little is left for it, it goes beneath.
    """
    if not rows:
        return []
    *sizes, last = _sizes(rows)
    before = sum(sizes) + len(GAP) * len(sizes)
    room = last if columns is None else min(last, columns - before)
    lines = []
    for row in rows:
        cells = [_set(row[i], size, i in right) for i, size in enumerate(sizes)]
        if columns is not None and room < min(last, LEAST):
            lines.append(GAP.join(cells).rstrip())
            lines += [f"    {part}" for part in _broken(row[-1], max(columns - 4, 1))]
            continue
        for part in _broken(row[-1], room):
            lines.append(GAP.join([*cells, _set(part, room, len(sizes) in right)]).rstrip())
            cells = [" " * size for size in sizes]
    return lines


def as_text(rows: list[list[str]], columns: int | None = None, names: int = 3) -> str:
    """A table with its header: `names` columns to the left, numbers to the right.

    Where it is too wide, titles take two lines, then the last columns go, and are named below.
    Where not even the first number has room, each row is a list of its own.
    """
    columns = columns or width()
    head, *body = rows
    one = [[title] for title in head]
    if columns is None or _fits(_under(one, body), columns):
        return "\n".join(_table(one, body, columns, names))
    two = [_in_two(title) for title in head]
    for kept in range(len(head), names, -1):
        some, left = [row[:kept] for row in body], head[kept:]
        if _fits(_under(two[:kept], some), columns):
            lines = _table(two[:kept], some, columns, names)
            note = f"no room for: {', '.join(left)}"
            return "\n".join([*lines, *(_broken(note, columns, 2) if left else [])])
    each = (aligned(list(zip(head, row, strict=True)), columns) for row in body)
    return "\n\n".join(map("\n".join, each))


def _table(
    titles: list[list[str]], body: list[list[str]], columns: int | None, names: int
) -> list[str]:
    rows = _under(titles, body)
    sentences = max(len(row[-1]) for row in rows) > LEAST  # they are no numbers
    lines = aligned(rows, columns, range(names, len(titles) - sentences))
    *sizes, last = _sizes(rows)
    if columns is not None:
        last = min(last, columns - sum(sizes) - len(GAP) * len(sizes))
    lines.insert(len(rows) - len(body), GAP.join("─" * size for size in (*sizes, last)))
    return lines


def _under(titles: list[list[str]], body: list[list[str]]) -> list[list[str]]:
    """The rows beneath titles of one or two lines, which stand at the bottom."""
    tallest = max(map(len, titles))
    padded = [[""] * (tallest - len(lines)) + lines for lines in titles]
    return [*map(list, zip(*padded, strict=True)), *body]


def _in_two(title: str) -> list[str]:
    """Broken where the longer half is shortest."""
    words = title.split()
    halves = [[" ".join(words[:i]), " ".join(words[i:])] for i in range(1, len(words))]
    return min(halves, key=lambda half: max(map(len, half)), default=[title])


def _fits(rows: Sequence[Sequence[str]], columns: int) -> bool:
    *sizes, last = _sizes(rows)
    return sum(sizes) + len(GAP) * len(sizes) + min(last, LEAST) <= columns


def _sizes(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _set(cell: str, size: int, right: bool) -> str:
    return cell.rjust(size) if right else cell.ljust(size)


def _broken(text: str, columns: int, hang: int = 0) -> list[str]:
    return textwrap.wrap(
        text,
        columns,
        subsequent_indent=" " * hang,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [""]
