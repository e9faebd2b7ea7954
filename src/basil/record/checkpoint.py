"""A tree of plain values and tensors in one safetensors file.

The tensors lie in the file's body; the tree, with a reference in each tensor's place, is JSON in
its header.  A tensor that occurs in many places (a model that S nodes remember) is written once and
is one tensor again when read.  No pickle.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from basil.errors import UserError
from basil.protocol.requests import Rejoin
from basil.record.disk import replacing, save_tensors

TENSOR, REJOIN = "tensor:", "rejoin:"


def save(path: Path, tree: Any, durable: bool = False) -> None:
    """Write the tree; a reader sees the old file or the new one, never half of one."""
    tensors: dict[str, Tensor] = {}
    names: dict[int, str] = {}

    def pack(value: Any) -> Any:
        if isinstance(value, Tensor):
            if id(value) not in names:
                names[id(value)] = str(len(names))
                tensors[names[id(value)]] = value.detach().cpu().contiguous()
            return TENSOR + names[id(value)]
        if isinstance(value, Rejoin):
            return REJOIN
        if isinstance(value, dict):
            return {str(key): pack(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [pack(item) for item in value]
        return value

    text = json.dumps(pack(tree))
    with replacing(path, durable) as partial:
        save_tensors(partial, tensors, {"tree": text})


def load(path: Path, device: torch.device | str = "cpu") -> Any:
    """The tree that `save` wrote."""
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            text = file.metadata()["tree"]
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError, TypeError, OSError) as error:
        raise UserError(f"{path} is not a checkpoint that can be read: {error}") from error

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
