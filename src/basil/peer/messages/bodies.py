"""What travels, as bytes: models and baskets as safetensors files, notes as a few characters.

A receiver knows beforehand what a file must look like, so nothing of its header is interpreted: it
must equal, byte for byte, the header that the receiver itself would write.  Duplicate keys, other
types, 100,000 empty tensors or a header of 99 MB are then simply other bytes.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
import torch
from torch import Tensor

from basil.learning.layout import Layout
from basil.peer.limits import HEADER
from basil.peer.messages.chunks import Buffer
from basil.protocol.requests import Absent, Body, Rejoin
from basil.protocol.sharing.basket import Basket

MODEL, REJOIN, BASKET, ABSENT = "model", "rejoin", "basket", "absent"
KINDS = (MODEL, REJOIN, BASKET, ABSENT)

_PREFIX = 8  # bytes that hold the length of the header
_TYPES = {"uint8": "U8", "int64": "I64", "int32": "I32", "float32": "F32", "float64": "F64"}
_NOTE = 10  # characters that the number of a node may take
_PIECE = 1 << 16  # values looked at at once: they stay in the cache


class Refused(Exception):
    """Something that came in is not taken.  `reason` is a word or two, for the counters."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


@dataclass(frozen=True)
class RowForm:
    """The one form of all rows of a basket (see `Basket`), and how many there may be."""

    dtype: str
    shape: tuple[int, ...]
    bits: float
    most: int

    @property
    def bytes(self) -> int:
        return np.dtype(self.dtype).itemsize * prod(self.shape)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(json.dumps([self.dtype, self.shape]).encode()).hexdigest()


class Forms:
    """How this run's bodies look: to write them, and to refuse what looks otherwise."""

    def __init__(self, layout: Layout, rows: RowForm | None = None) -> None:
        self.layout, self.rows = layout, rows
        places = {s.name: ("F32", s.shape, 4 * s.start, 4 * s.stop) for s in layout.slots}
        self.header = _header(places)
        self.model_size = len(self.header) + 4 * layout.size
        self.fingerprints = {
            MODEL: layout.fingerprint,
            BASKET: "" if rows is None else rows.fingerprint,
        }

    def encode(self, body: Body) -> tuple[str, list[Buffer]]:
        """Kind and bytes; the pieces belong one after the other."""
        if isinstance(body, Tensor):
            vector = body.detach().to("cpu", torch.float32).contiguous()
            if vector.shape != (self.layout.size,):
                raise ValueError(f"a model of shape {tuple(vector.shape)} is not of this layout")
            return MODEL, [self.header, vector.numpy().data.cast("B")]
        if isinstance(body, Basket):
            rows = np.ascontiguousarray(body.rows)
            if self.rows is None or (str(rows.dtype), rows.shape[1:]) != self._row_form():
                raise ValueError(f"a basket of {rows.dtype} {rows.shape[1:]} is not of this run")
            flat = rows.reshape(-1).view(np.uint8)
            return BASKET, [self._rows_header(len(rows)), flat.data]
        if isinstance(body, Absent):
            return ABSENT, [str(body.node).encode()]
        return REJOIN, []

    def check(self, kind: str, size: int, layout: str) -> None:
        """Can a body of this kind have that size and layout?  Before a byte of it is taken."""
        if layout != self.fingerprints.get(kind, ""):
            raise Refused("layout", f"a {kind} of another layout")
        if kind == MODEL:
            good = size == self.model_size
        elif kind == BASKET:
            good = self.rows is not None and size <= self.basket_size
        else:
            good = size == 0 if kind == REJOIN else 0 < size <= _NOTE
        if not good:
            raise Refused("size", f"{size} bytes for a {kind}")

    @property
    def basket_size(self) -> int:
        """The most that a basket takes."""
        rows = self.rows
        return 0 if rows is None else len(self._rows_header(rows.most)) + rows.most * rows.bytes

    def decode(self, kind: str, data: memoryview) -> Body:
        """The body; a model lies in the memory of `data`.  Its values are finite."""
        if kind == MODEL:
            return self._model(data)
        if kind == BASKET:
            return self._basket(data)
        if kind == ABSENT:
            text = bytes(data)
            if not text.isdigit() or str(int(text)).encode() != text:
                raise Refused("body", "not the number of a node")
            return Absent(int(text))
        return Rejoin()

    def _model(self, data: memoryview) -> Tensor:
        start = len(self.header)
        if len(data) != self.model_size or data[:start] != self.header:
            raise Refused("header", "not the header of this layout")
        vector = torch.frombuffer(data, dtype=torch.float32, offset=start)
        _finite(vector.numpy())
        return vector

    def _basket(self, data: memoryview) -> Basket:
        rows = self.rows
        length = int.from_bytes(data[:_PREFIX], "little") + _PREFIX
        if rows is None or length > min(len(data), HEADER):
            raise Refused("header", "longer than the body")
        count, rest = divmod(len(data) - length, rows.bytes)
        if rest or count > rows.most or data[:length] != self._rows_header(count):
            raise Refused("header", "not the header of a basket of this run")
        values = np.frombuffer(data, rows.dtype, count * prod(rows.shape), length)
        if values.dtype.kind == "f":
            _finite(values)
        return Basket(values.reshape(count, *rows.shape), rows.bits)

    def _rows_header(self, count: int) -> bytes:
        assert self.rows is not None
        shape = (count, *self.rows.shape)
        return _header({"rows": (_TYPES[self.rows.dtype], shape, 0, count * self.rows.bytes)})

    def _row_form(self) -> tuple[str, tuple[int, ...]]:
        assert self.rows is not None
        return self.rows.dtype, self.rows.shape


@lru_cache(maxsize=8)
def forms_of(layout: Layout, rows: RowForm | None = None) -> Forms:
    """Made once: a header of hundreds of tensors takes its time."""
    return Forms(layout, rows)


def _header(places: dict[str, tuple[str, tuple[int, ...], int, int]]) -> bytes:
    """A safetensors header: its length in 8 bytes, JSON, spaces up to a multiple of 8."""
    tree = {
        name: {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}
        for name, (dtype, shape, start, stop) in places.items()
    }
    text = json.dumps(tree, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > HEADER:
        raise ValueError(f"the layout's header takes {len(text)} bytes; {HEADER} are allowed")
    return len(text).to_bytes(_PREFIX, "little") + text


def _finite(values: "np.ndarray[tuple[int, ...], np.dtype[np.floating]]") -> None:
    for start in range(0, values.size, _PIECE):
        piece = values[start : start + _PIECE]  # a NaN is the largest and the smallest
        if not (np.isfinite(piece.max()) and np.isfinite(piece.min())):
            raise Refused("not finite", "NaN or infinite values")
