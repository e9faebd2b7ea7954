"""Where things lie on the device: in numbered places, which a captured graph can be told."""

import weakref
from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class Models:
    """Copies of the models in use, as rows of one matrix.

    A cache: the models themselves are ordinary tensors, and a model whose row has been given to
    another is copied in again when it is next asked for.  `relieve`: do what waits, since it needs
    all rows.
    """

    def __init__(
        self,
        rows: int,
        width: int,
        device: torch.device,
        relieve: Callable[[], None] = lambda: None,
    ) -> None:
        self._relieve = relieve
        self.matrix = torch.zeros(rows, width, device=device)
        self._lines: Sequence[Tensor] = ()
        self._wanted = rows
        self._row_of: dict[int, int] = {}  # id of a model -> row
        self._model_in: list[weakref.ref[Tensor] | None] = [None] * rows
        self._next = 0
        self._needed: set[int] = set()  # rows of the command that is being put together
        self._held: set[int] = set()  # and of those that wait

    def join(self, models: int) -> bool:
        """Somebody has about so many models in use.  Whether the matrix is another now."""
        self._wanted += models
        more = self._wanted - len(self.matrix)
        if more <= 0:
            return False
        self.matrix = torch.cat([self.matrix, self.matrix.new_zeros(more, self.matrix.shape[1])])
        self._model_in += [None] * more
        self._lines = ()
        return True

    def lines(self, length: int) -> Sequence[Tensor]:
        """The models in all rows, by their length."""
        if not self._lines:
            self._lines = self.matrix[:, :length].unbind(0)
        return self._lines

    def leave(self, models: int) -> None:
        self._wanted -= models

    def begin(self, waits: bool = False) -> None:
        """A new command: the rows of those before may be used again, unless they wait."""
        if waits:
            self._held |= self._needed
        else:
            self._held.clear()
        self._needed.clear()

    def row(self, model: Tensor) -> int:
        row = self._row_of.get(id(model))
        if row is not None:
            known = self._model_in[row]
            if known is not None and known() is model:
                self._needed.add(row)
                return row
        row = self.free()
        self.lines(len(model))[row].copy_(model)
        self.keep(model, row)
        return row

    def free(self) -> int:
        """A row that no command needs: of these the one that was filled longest ago."""
        row = self._unneeded()
        if row is None:
            self._relieve()
            self._held.clear()
            row = self._unneeded()
            assert row is not None, "a command that needs more rows than there are"
        self._next = (row + 1) % len(self._model_in)
        self._needed.add(row)
        return row

    def _unneeded(self) -> int | None:
        row, rows = self._next, len(self._model_in)
        for _ in range(rows):
            if row not in self._needed and row not in self._held:
                return row
            row = (row + 1) % rows
        return None

    def keep(self, model: Tensor, row: int) -> None:
        """The row holds this model from now on."""
        self._model_in[row] = weakref.ref(model)
        self._row_of[id(model)] = row
        if len(self._row_of) > 4 * len(self._model_in):  # most are of models that are no more
            self._row_of = {
                id(m): i for i, known in enumerate(self._model_in) for m in _alive(known)
            }


def _alive(known: "weakref.ref[Tensor] | None") -> list[Tensor]:
    model = None if known is None else known()
    return [] if model is None else [model]


class Places:
    """Numbered places for small results; a place is free again when its holder is gone.

    Place 0 is nobody's.
    """

    def __init__(self, make: Callable[[int], Tensor], capacity: int) -> None:
        self._make = make
        self.tensor = make(capacity)
        self._free = list(range(capacity - 1, 0, -1))

    def take(self) -> int | None:
        """A place, or None if all are taken: then `grow`."""
        return self._free.pop() if self._free else None

    def give_back(self, place: int) -> None:
        self._free.append(place)

    def grow(self) -> None:
        """Twice as many.  Whatever was captured with the old tensor is void."""
        old = self.tensor
        self.tensor = self._make(2 * len(old))
        self.tensor[: len(old)].copy_(old)
        self._free = list(range(2 * len(old) - 1, len(old) - 1, -1))
