"""Compressed baskets: the same samples again, or a refusal; never more than was expected."""

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basil.data.packing import AS_IS, BLOCK, DEFLATED, DIFFERENCES, Packing

SHAPES = st.sampled_from([(1, 4, 4), (3, 5, 2), (7,), (1, 1, 1)])


@st.composite
def baskets(draw):
    """Random bytes, smooth pictures, one colour: each way of packing is the best for some."""
    shape, label, count = draw(SHAPES), draw(st.integers(1, 4)), draw(st.integers(0, 300))
    packing = Packing(shape, label)
    stream = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["random", "smooth", "plain"]))
    rows = np.full((count, packing.width), 7, np.uint8)
    if kind == "random":
        rows = stream.integers(0, 256, rows.shape, dtype=np.uint8)
    elif kind == "smooth":
        rows = np.cumsum(stream.integers(0, 2, rows.shape), axis=1).astype(np.uint8)
    return packing, rows


@settings(max_examples=150, deadline=None)
@given(baskets())
def test_what_was_packed_is_unpacked_in_its_order(case) -> None:
    packing, rows = case
    packed = packing.pack(rows)
    assert len(packed) <= rows.size + 1
    assert packed[0] == AS_IS or len(packed) % BLOCK == 0
    np.testing.assert_array_equal(packing.unpack(packed, len(rows)), rows)
    assert packing.pack(rows) == packed  # the rows decide, and nothing else
    if len(rows):
        with pytest.raises(ValueError, match=r"bytes"):
            packing.unpack(packed, len(rows) - 1)


def test_each_way_has_its_use() -> None:
    stream, packing = np.random.default_rng(0), Packing((3, 16, 16), 1)
    noise = stream.integers(0, 256, (50, packing.width), dtype=np.uint8)
    digits = np.where(noise > 240, noise, 0).astype(np.uint8)
    slopes = np.arange(16)[:, None] * 5 + np.arange(16)
    photos = noise.copy()
    photos[:, :-1] = (stream.integers(0, 99, (50, 1, 1, 1)) + slopes + np.zeros((3, 1, 1))).reshape(
        50, -1
    )
    photos[:, :-1] += stream.integers(0, 3, (50, 768), dtype=np.uint8)
    assert [packing.pack(rows)[0] for rows in (noise, digits, photos)] == [
        AS_IS,
        DEFLATED,
        DIFFERENCES,
    ]


def test_a_bomb_does_not_go_off() -> None:
    """64 MB of zeros in 64 kB: no more is unpacked than five samples take."""
    stream, zeros = zlib.compressobj(), bytes(1 << 20)
    bomb = b"".join(stream.compress(zeros) for _ in range(64)) + stream.flush()
    assert len(bomb) < 1 << 17
    for way in (DEFLATED, DIFFERENCES):
        with pytest.raises(ValueError, match="more than 50 bytes"):
            Packing((3, 3), 1).unpack(bytes([way]) + bomb, 5)


@pytest.mark.parametrize(
    ("packed", "sentence"),
    [
        (b"", "no known way"),
        (b"\x07abc", "no known way"),
        (b"\x00" + bytes(11), "not 0 to 3 samples"),
        (b"\x00" + bytes(40), "not 0 to 3 samples"),
        (b"\x01abc", "cannot be unpacked"),
        (b"\x01" + zlib.compress(bytes(30))[:-3], "cut off"),
        (b"\x01" + zlib.compress(bytes(29)), "not 0 to 3 samples"),
        (b"\x01" + zlib.compress(bytes(30)) + b"whose it is", "after the samples"),
        (b"\x01" + zlib.compress(bytes(30)) + bytes(BLOCK), "after the samples"),
    ],
)
def test_what_is_no_basket_is_refused(packed: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Packing((3, 3), 1).unpack(packed, 3)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_samples_or_refused(packed: bytes) -> None:
    try:
        rows = Packing((2, 2), 1).unpack(packed, 4)
    except ValueError:
        return
    assert rows.shape[1] == 5
    assert len(rows) <= 4
