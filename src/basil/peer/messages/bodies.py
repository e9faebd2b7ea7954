"""What travels, as bytes: models and baskets as safetensors files, notes as a few characters.

A receiver knows beforehand what a file must look like, so nothing of its header is interpreted: it
must equal, byte for byte, the header that the receiver itself would write.  Duplicate keys, other
types, 100,000 empty tensors or a header of 99 MB are then simply other bytes.

A body travels in chunks, and its digest is the SHA-256 of the SHA-256s of its chunks, one after the
other.  A plain SHA-256 binds one core for 39 ms for 50 MB, before the first byte can leave and
after the last one has come; chunks can be hashed side by side, and while further ones arrive.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from basil.learning.layout import Layout
from basil.peer.limits import CHUNK, HEADER
from basil.protocol.requests import Absent, Body, Rejoin
from basil.protocol.sharing.basket import Basket

Buffer: TypeAlias = bytes | memoryview
Chunk: TypeAlias = list[memoryview]  # pieces that follow each other

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
            form, shape = self.rows, rows.shape[1:]
            if form is None or (str(rows.dtype), shape) != (form.dtype, form.shape):
                raise ValueError(f"a basket of {rows.dtype} {shape} is not of this run")
            return BASKET, [_rows_header(form, len(rows)), rows.reshape(-1).view(np.uint8).data]
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
            rows = self.rows
            good = rows is not None and (
                size <= len(_rows_header(rows, rows.most)) + rows.most * rows.bytes
            )
        else:
            good = size == 0 if kind == REJOIN else 0 < size <= _NOTE
        if not good:
            raise Refused("size", f"{size} bytes for a {kind}")

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
        if rest or count > rows.most or data[:length] != _rows_header(rows, count):
            raise Refused("header", "not the header of a basket of this run")
        values = np.frombuffer(data, rows.dtype, count * prod(rows.shape), length)
        if values.dtype.kind == "f":
            _finite(values)
        return Basket(values.reshape(count, *rows.shape), rows.bits)


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


def _rows_header(form: RowForm, count: int) -> bytes:
    """Of a basket of so many rows."""
    return _header({"rows": (_TYPES[form.dtype], (count, *form.shape), 0, count * form.bytes)})


def _finite(values: "np.ndarray[tuple[int, ...], np.dtype[np.floating]]") -> None:
    for start in range(0, values.size, _PIECE):
        if not np.isfinite(values[start : start + _PIECE]).all():
            raise Refused("not finite", "NaN or infinite values")


# -- in chunks ---------------------------------------------------------------------------------

_pool = ThreadPoolExecutor(min(4, os.cpu_count() or 1), thread_name_prefix="basil-hash")


def cut(parts: Sequence[Buffer]) -> list[Chunk]:
    """The parts one after the other, as whole chunks and a rest; nothing is copied."""
    chunks: list[Chunk] = []
    room = 0
    for part in parts:
        view = memoryview(part)
        while len(view):
            if not room:
                chunks.append([])
                room = CHUNK
            chunks[-1].append(view[:room])
            taken = len(chunks[-1][-1])
            view, room = view[taken:], room - taken
    return chunks


def digest_of(chunks: Sequence[Chunk]) -> str:
    """Of a body that is all here."""
    digest = Digest()
    for chunk in chunks:
        digest.add(chunk)
    return digest.hexdigest()


class Digest:
    """Of a body that arrives chunk by chunk."""

    def __init__(self) -> None:
        self._first: Chunk | None = None
        self._rest: list[Future[bytes]] = []

    def add(self, chunk: Chunk) -> None:
        """The next chunk, whose memory must stay as it is."""
        if self._first is None:  # often the only one, and not worth another thread
            self._first = chunk
        else:
            self._rest.append(_pool.submit(_sha256, chunk))

    def hexdigest(self) -> str:
        first = [] if self._first is None else [_sha256(self._first)]
        leaves = first + [leaf.result() for leaf in self._rest]
        return hashlib.sha256(b"".join(leaves)).hexdigest()


def _sha256(chunk: Chunk) -> bytes:
    digest = hashlib.sha256()
    for piece in chunk:
        digest.update(piece)
    return digest.digest()
