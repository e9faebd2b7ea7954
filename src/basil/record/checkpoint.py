"""A tree of plain values and tensors in one safetensors file.

The tensors lie in the file's body; the tree, with a reference in each tensor's place, is JSON in
its header.  A tensor that occurs in many places (a model that S nodes remember) is written once and
is one tensor again when read.  No pickle.

Beside the tree stands a digest of it and of all tensors: one flipped bit would be another model.
"""

import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from basil.errors import UserError
from basil.protocol.requests import Rejoin
from basil.record.disk import content_of, replacing, save_tensors

TENSOR, REJOIN = "tensor:", "rejoin:"


class Damaged(UserError):
    """A file that is not the checkpoint that was written."""


def save(path: Path, tree: Any, durable: bool = False, before: Path | None = None) -> None:
    """Write the tree; a reader sees the old file or the new one, never half of one.

    before: where the old one is kept, once the new one is whole.
    """
    tensors: dict[str, Tensor] = {}
    names: dict[int, str] = {}

    def pack(value: Any) -> str:
        """What JSON has no form for."""
        if isinstance(value, Tensor):
            if id(value) not in names:
                names[id(value)] = str(len(names))
                tensors[names[id(value)]] = value.detach().cpu().contiguous()
            return TENSOR + names[id(value)]
        if isinstance(value, Rejoin):
            return REJOIN
        raise TypeError(f"a checkpoint cannot hold {value!r:.40}")

    text = json.dumps(tree, default=pack)
    with replacing(path, durable) as partial:
        save_tensors(partial, tensors, {"tree": text, "sha256": _digest(text, tensors)})
        if before is not None:
            _keep(path, before)


def _keep(path: Path, before: Path) -> None:
    """Under a second name, so that there is one under the first at every moment."""
    with suppress(OSError):  # a file system without links goes without
        before.unlink(missing_ok=True)
        os.link(path, before)


def load(path: Path, device: torch.device | str = "cpu") -> Any:
    """The tree that `save` wrote, bit for bit; whatever else is there is said to be damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        text, digest = metadata["tree"], metadata.get("sha256")
        # Earlier versions wrote none.
        if digest is not None and digest != _digest(text, tensors):
            raise ValueError("its digest is another than the one that was written with it")
        return _unpacked(text, {name: tensor.to(device) for name, tensor in tensors.items()})
    except (SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
        raise Damaged(f"{path} is not a checkpoint that can be read: {error}") from error


def load_either(path: Path, before: Path, device: torch.device | str = "cpu") -> Any:
    """The checkpoint at `path`; if that is damaged, the one before, which then takes its place."""
    try:
        return load(path, device)
    except Damaged as error:
        try:
            tree = load(before, device)
        except Damaged:
            raise error from None
        warnings.warn(f"{error}; the run goes on from the one before it", stacklevel=2)
    os.replace(before, path)
    return tree


def _digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    total = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        total.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(content_of(tensor))
    return total.hexdigest()


def _unpacked(text: str, tensors: Mapping[str, Tensor]) -> Any:
    """The tree, with tensors where it refers to them."""

    def unpack(value: Any) -> Any:
        if isinstance(value, str) and value.startswith(TENSOR):
            return tensors[value.removeprefix(TENSOR)]
        if value == REJOIN:
            return Rejoin()
        if isinstance(value, dict):
            return {key: unpack(item) for key, item in value.items()}
        if isinstance(value, list):
            return [unpack(item) for item in value]
        return value

    return unpack(json.loads(text))
