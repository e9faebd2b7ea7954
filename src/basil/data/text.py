"""A text of one's own as a data set: sequences of tokens, and for each the token that follows."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from basil import rng
from basil.data import smollm2
from basil.data.samples import IGNORED, Array, Dataset, Samples
from basil.errors import UserError
from basil.table import nearest

BYTES = "bytes"
BLOCKS = 100
SPEAKER = re.compile(r"([^\n:]+):[ \t]*(\n|$)")
Encode = Callable[[str], Array]


def text(
    seed: int,
    *,
    path: str = "",
    tokenizer: str = BYTES,
    length: int = 64,
    by: str = "block",
    test_fraction: float = 0.1,
) -> Dataset:
    """A UTF-8 text file: from each token, predict the next; for `tiny-transformer`.

    tokenizer: "bytes"; a tokenizer.json, which the package `tokenizers` reads; or "smollm2", that
    of the language model.
    length: of a sequence, in tokens.  by: what partition `by-key` gives to a node as a whole;
    "speaker": all paragraphs below a line NAME:, "document": what stands between blank lines,
    "block": one of up to 100 equal parts.  No sequence belongs to two of them; where their end
    leaves one short, it is filled up with tokens that do not count.  test_fraction: the share of
    the sequences that is kept for testing, the same in every run.
    """
    ways: dict[str, Callable[[str], list[str]]] = {
        "speaker": _by_speaker,
        "document": _paragraphs,
        "block": lambda text: _blocks(text, length),
    }
    if by not in ways:
        raise UserError(f"by = {by!r} does not exist; {nearest(by, ways)}")
    if length < 1:
        raise UserError(f"length = {length}: a sequence has at least 1 token")
    if not 0 < test_fraction < 1:
        raise UserError(f"test_fraction = {test_fraction}: it is a share between 0 and 1")
    encode, vocabulary = _encoder(tokenizer)
    cut = [_sequences(encode(part), length) for part in ways[by](_read(path))]
    x, y = (np.concatenate(parts) for parts in zip(*cut, strict=True)) if cut else ((), ())
    if len(x) < 2:
        raise UserError(f"data.path = {path!r}: it makes {len(x)} sequences of {length} tokens")
    key = np.repeat(np.arange(len(cut)), [len(part) for part, _ in cut])
    order = rng.stream(0, "text", "split").permutation(len(x))
    held_out = min(max(1, round(len(x) * test_fraction)), len(x) - 1)
    test, train = (
        Samples(x[some], y[some], key=key[some])
        for some in (np.sort(order[:held_out]), np.sort(order[held_out:]))
    )
    names = tuple(map(str, range(vocabulary)))
    return Dataset("text", train, test, vocabulary, names, mean=(), std=())


def _read(path: str) -> str:
    if not path:
        raise UserError("data set 'text' reads a file of yours: name it in data.path")
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(f"data.path = {path!r} cannot be read as UTF-8 text: {error}") from error


def _paragraphs(text: str) -> list[str]:
    return [part + "\n\n" for part in re.split(r"\n(?:[ \t]*\n)+", text) if part.strip()]


def _by_speaker(text: str) -> list[str]:
    """What each says, one after the other; a paragraph without a name goes on with the last."""
    said: dict[str, list[str]] = {}
    name = ""
    for paragraph in _paragraphs(text):
        if head := SPEAKER.match(paragraph):
            name = head[1].strip()
        said.setdefault(name, []).append(paragraph)
    if not said.keys() - {""}:
        raise UserError("by = 'speaker': no paragraph of this text begins with a line NAME:")
    return ["".join(parts) for parts in said.values()]


def _blocks(text: str, least: int) -> list[str]:
    size = max(least + 1, -(-len(text) // BLOCKS))
    return [text[start : start + size] for start in range(0, len(text), size)]


def _encoder(name: str) -> tuple[Encode, int]:
    """From text to tokens, and how many different ones there are."""
    if name == BYTES:
        return lambda text: np.frombuffer(text.encode(), np.uint8), 256
    file = smollm2.unpacked() / "tokenizer.json" if name == smollm2.NAME else Path(name)
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise UserError(
            f"tokenizer = {name!r}: the package tokenizers reads it, which is not installed here;"
            f" run `pip install tokenizers`, or use {BYTES!r}"
        ) from None
    try:
        made = Tokenizer.from_file(str(file.expanduser()))
    except Exception as error:  # the package raises nothing more precise
        raise UserError(f"tokenizer = {name!r} cannot be read: {error}") from error
    return lambda text: np.array(made.encode(text).ids, np.int64), made.get_vocab_size()


def _sequences(tokens: Array, length: int) -> tuple[Array, Array]:
    """Inputs and what follows each of them, [sequence, length]."""
    pairs = max(0, len(tokens) - 1)
    count = -(-pairs // length)
    x, y = np.zeros(count * length, np.int32), np.full(count * length, IGNORED, np.int64)
    x[:pairs], y[:pairs] = tokens[:-1], tokens[1:]
    return x.reshape(count, length), y.reshape(count, length)
