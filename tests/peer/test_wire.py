"""Manifests and bodies as bytes: what is written, and all that is refused."""

import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors

from basil.learning.layout import layout_of
from basil.peer.messages.bodies import Refused, RowForm, cut, digest_of, forms_of
from basil.peer.messages.manifest import Manifest, decode, signed_by_sender
from basil.protocol.requests import Absent, Rejoin
from basil.protocol.sharing.basket import Basket

from peer_helpers import VALUES, Rogue, layout_for, make_ring, model, pack, unpack

ROWS = RowForm("uint8", (65,), 520.0, most=100)


@pytest.fixture(scope="module")
def rogue(tmp_path_factory: pytest.TempPathFactory) -> Rogue:
    return Rogue(make_ring(tmp_path_factory.mktemp("wire") / "ring", 2), 0)


def test_a_model_travels_as_a_safetensors_file_and_comes_back_bit_for_bit(rogue: Rogue) -> None:
    manifest, data = rogue.packed(3, model())
    tensors = load_safetensors(data)
    views = layout_for().views(model())
    assert tensors.keys() == views.keys()
    assert all(torch.equal(tensors[name], views[name]) for name in views)
    back = unpack(manifest, data, layout_for())
    assert isinstance(back, torch.Tensor)
    assert torch.equal(back, model())


@pytest.mark.parametrize("sizes", [[], [0], [1], [7, 1 << 20], [(1 << 20) - 1, 1, 5], [3 << 20]])
def test_the_digest_is_that_of_the_chunks_digests(sizes: list[int]) -> None:
    parts = [random.Random(n).randbytes(n) for n in sizes]
    whole = b"".join(parts)
    pieces = [whole[i : i + (1 << 20)] for i in range(0, len(whole), 1 << 20)]
    expected = hashlib.sha256(b"".join(hashlib.sha256(p).digest() for p in pieces)).hexdigest()
    chunks = cut(parts)
    assert [b"".join(chunk) for chunk in chunks] == pieces
    assert digest_of(chunks) == expected


def test_a_larger_network_with_many_tensors_comes_back(rogue: Rogue) -> None:
    network = torch.nn.Sequential(*(torch.nn.Linear(n, n + 1) for n in range(1, 60)))
    layout = layout_of(network)
    vector = layout.flatten(network)
    manifest, data = pack(vector, "s", 1, rogue.identity, rogue.roster, layout)
    assert load_safetensors(data)["58.weight"].shape == (60, 59)
    back = unpack(manifest, data, layout)
    assert isinstance(back, torch.Tensor)
    assert torch.equal(back, vector)


@pytest.mark.parametrize("body", [Rejoin(), Absent(7), Absent(0)])
def test_notes_come_back(rogue: Rogue, body: Rejoin | Absent) -> None:
    manifest, data = rogue.packed(1, body)
    assert unpack(manifest, data, layout_for()) == body


@given(count=st.integers(0, 100), seed=st.integers(0, 9))
@settings(max_examples=20, deadline=None)
def test_baskets_come_back(rogue: Rogue, count: int, seed: int) -> None:
    rows = np.random.default_rng(seed).integers(0, 256, (count, 65)).astype(np.uint8)
    manifest, data = pack(
        Basket(rows, 520.0), "share", 1, rogue.identity, rogue.roster, layout_for(), ROWS
    )
    back = unpack(manifest, data, layout_for(), ROWS)
    assert isinstance(back, Basket)
    assert np.array_equal(back.rows, rows)
    assert back.bits == 520.0


def test_a_basket_with_more_rows_than_there_can_be_is_refused(rogue: Rogue) -> None:
    many = Basket(np.zeros((101, 65), np.uint8), 520.0)
    manifest, data = pack(
        many, "share", 1, rogue.identity, rogue.roster, layout_for(), replace(ROWS, most=1000)
    )
    with pytest.raises(Refused, match="size"):
        unpack(manifest, data, layout_for(), ROWS)
    with pytest.raises(Refused, match="header"):
        forms_of(layout_for(), ROWS).decode("basket", memoryview(bytearray(data)))


def _fits(rogue: Rogue, data: bytes) -> Manifest:
    """A manifest by which these bytes have the right size, layout and digest."""
    manifest, _ = rogue.packed(1, model())
    return rogue.signed(manifest, size=len(data), sha256=digest_of(cut([data])))


def _file(header: str, values: torch.Tensor) -> bytes:
    text = header.encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + values.numpy().tobytes()


def _honest_header() -> str:
    data = bytes(forms_of(layout_for()).header)
    return data[8:].decode().rstrip()


def test_the_honest_header_is_taken() -> None:
    """So that the refusals below are about what they change."""
    data = _file(_honest_header(), model())
    body = forms_of(layout_for()).decode("model", memoryview(bytearray(data)))
    assert isinstance(body, torch.Tensor)


@pytest.mark.parametrize(
    "header",
    [
        _honest_header().replace("F32", "I32", 1),
        _honest_header().replace("weight", "height"),
        _honest_header().replace("[1,999]", "[999,1]"),
        _honest_header()[:-1] + ',"bias":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
        _honest_header()[:-1] + ',"__metadata__":{"a":"b"}}',
        _honest_header()[:-1]
        + "".join(f',"e{i}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}' for i in range(9))
        + "}",
    ],
    ids=["dtype", "name", "shape", "duplicate key", "metadata", "empty tensors"],
)
def test_any_other_header_is_refused_even_with_the_right_digest(rogue: Rogue, header: str) -> None:
    data = _file(header, model())
    manifest = _fits(rogue, data)
    with pytest.raises(Refused, match=r"size|header"):
        unpack(manifest, data, layout_for())
    with pytest.raises(Refused, match="header"):
        forms_of(layout_for()).decode("model", memoryview(bytearray(data)))


def test_a_giant_header_is_refused_by_its_size_before_it_is_read(rogue: Rogue) -> None:
    forms = forms_of(layout_for())
    giant = (99 << 20).to_bytes(8, "little") + b"{" + b" " * (forms.model_size - 9)
    assert len(giant) == forms.model_size
    with pytest.raises(Refused, match="header"):
        unpack(_fits(rogue, giant), giant, layout_for())
    basket = (2**63).to_bytes(8, "little") + b"{}"
    with pytest.raises(Refused, match="header"):
        forms_of(layout_for(), ROWS).decode("basket", memoryview(bytearray(basket)))


@pytest.mark.parametrize("place", [0, 500, VALUES - 1])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_model_with_one_value_that_is_not_finite_is_refused(
    rogue: Rogue, value: float, place: int
) -> None:
    bad = model()
    bad[place] = value
    manifest, data = rogue.packed(1, bad)
    with pytest.raises(Refused, match="not finite"):
        unpack(manifest, data, layout_for())


def test_the_largest_finite_values_are_taken(rogue: Rogue) -> None:
    largest = torch.full((VALUES,), torch.finfo(torch.float32).max)
    largest[::2] *= -1
    manifest, data = rogue.packed(1, largest)
    assert torch.equal(unpack(manifest, data, layout_for()), largest)  # type: ignore[arg-type]


def test_a_model_of_another_layout_is_refused(rogue: Rogue) -> None:
    other = layout_of(torch.nn.Linear(1, VALUES // 2))  # as many values
    vector = torch.zeros(VALUES)
    manifest, data = pack(vector, "s", 1, rogue.identity, rogue.roster, other)
    with pytest.raises(Refused, match="layout"):
        unpack(manifest, data, layout_for())


def test_a_file_of_the_library_itself_with_other_names_is_refused(rogue: Rogue) -> None:
    data = save_safetensors({"x": model()})
    with pytest.raises(Refused, match=r"size|header"):
        unpack(_fits(rogue, data), data, layout_for())


def test_every_flipped_bit_of_a_body_is_noticed(rogue: Rogue) -> None:
    manifest, data = rogue.packed(1, model())
    generator = random.Random(0)
    for _ in range(300):
        place = generator.randrange(8 * len(data))
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        with pytest.raises(Refused, match="digest"):
            unpack(manifest, bytes(flipped), layout_for())


@pytest.mark.parametrize("change", [lambda d: d[:-1], lambda d: d + b"\0", lambda d: b""])
def test_a_body_of_another_size_is_refused(rogue: Rogue, change: Callable[[bytes], bytes]) -> None:
    manifest, data = rogue.packed(1, model())
    with pytest.raises(Refused, match="size"):
        unpack(manifest, change(data), layout_for())


def test_every_field_of_a_manifest_is_signed(rogue: Rogue) -> None:
    manifest, _ = rogue.packed(3, model())
    assert signed_by_sender(manifest, rogue.roster)
    changes: dict[str, Any] = {
        "version": 2, "run": "0" * 16, "stage": "other", "round": 4, "sender": 1, "kind": "basket",
        "size": 5, "layout": "", "sha256": "0" * 64, "signature": "0" * 128,
    }  # fmt: skip
    assert changes.keys() == {field.name for field in fields(manifest)}
    for field, value in changes.items():
        assert not signed_by_sender(replace(manifest, **{field: value}), rogue.roster), field


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[" * 4000,
        b"null",
        b"1" * 4000,
        b'{"version":1}',
        b"\xff\xfe",
        b" " * 5000,
    ],
)
def test_what_is_no_manifest_is_refused(text: bytes) -> None:
    with pytest.raises(Refused, match="manifest"):
        decode(text)


def test_only_the_canonical_form_of_a_manifest_is_taken(rogue: Rogue) -> None:
    manifest, _ = rogue.packed(3, model())
    data = manifest.encode()
    assert decode(data) == manifest
    tree = json.loads(data)
    spaced = json.dumps(tree).encode()
    turned = json.dumps(dict(reversed(tree.items())), separators=(",", ":")).encode()
    doubled = data[:-1] + b',"round":3}'
    number = data.replace(b'"round":3', b'"round":3.0')
    boolean = data.replace(b'"round":3', b'"round":true')
    negative = data.replace(b'"round":3', b'"round":-3')
    for other in (spaced, turned, doubled, number, boolean, negative, data + b" "):
        with pytest.raises(Refused, match="manifest"):
            decode(other)


def test_20000_fuzzed_manifests_are_refused_or_not_signed(rogue: Rogue) -> None:
    """Whatever the bytes, the answer is `Refused` or a manifest with a signature that fails."""
    manifest, _ = rogue.packed(3, model())
    data, generator = manifest.encode(), random.Random(1)
    passed = 0
    for _ in range(20_000):
        fuzzed = bytearray(data)
        for _ in range(generator.randint(1, 4)):
            place = generator.randrange(len(fuzzed))
            match generator.randrange(4):
                case 0:
                    fuzzed[place] = generator.randrange(256)
                case 1:
                    del fuzzed[place : place + generator.randint(1, 20)]
                case 2:
                    fuzzed[place:place] = generator.randbytes(generator.randint(1, 20))
                case _:
                    fuzzed[place] = generator.choice(b'0123456789abcdef"{}[],:')
            if not fuzzed:
                break
        try:
            read = decode(bytes(fuzzed))
        except Refused:
            continue
        if read != manifest:
            passed += 1
            assert not signed_by_sender(read, rogue.roster)
    assert passed > 100  # the fuzzing reaches the signature, not only the form


def test_a_header_of_more_than_a_mebibyte_cannot_even_be_made() -> None:
    names = torch.nn.ParameterDict({f"{i:0100d}": torch.zeros(1) for i in range(8000)})
    with pytest.raises(ValueError, match="header takes"):
        forms_of(layout_of(names))


def test_a_body_that_is_not_of_this_run_is_our_own_mistake(rogue: Rogue, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not of this layout"):
        rogue.packed(1, torch.zeros(VALUES + 1))
    with pytest.raises(ValueError, match="not of this run"):
        rogue.packed(1, Basket(np.zeros((1, 3)), 8.0))
