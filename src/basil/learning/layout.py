"""A model is a flat float32 vector; a layout says what lies where in it.

Attacks, distances, averages, the wire and the checkpoint see the vector; only `compute` sees the
network.  What travels is what is trained: parameters that require a gradient, and floating-point
buffers (BatchNorm's running statistics).  The rest is frozen: every node has it already, and its
digest is part of the layout's fingerprint.  A trained parameter of half precision stays so in the
network; its place in the vector is float32.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from basil.errors import UserError

HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Slot:
    """One tensor of the network: its name, its shape, and its place in the vector."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int
    trained: bool
    dtype: torch.dtype = torch.float32  # in the network

    @property
    def layer(self) -> str:
        return self.name.rpartition(".")[0]


@dataclass(frozen=True)
class Layout:
    """All tensors of a network that travel, one after the other."""

    slots: tuple[Slot, ...]
    frozen: str = ""  # SHA-256 of the rest; empty if there is none

    @property
    def size(self) -> int:
        return self.slots[-1].stop

    @property
    def layers(self) -> list[slice]:
        """One slice of the vector for each layer: a module's weights together with its biases."""
        starts = [s.start for p, s in pairwise((None, *self.slots)) if s and _new_layer(p, s)]
        return [slice(a, b) for a, b in pairwise([*starts, self.size])]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of names, shapes and what is frozen: peers with one understand each other."""
        text = json.dumps([(s.name, s.shape, s.trained) for s in self.slots])
        half = [f"{s.name} {s.dtype}" for s in self.halves]
        if half or self.frozen:
            text += json.dumps([half, self.frozen])
        return hashlib.sha256(text.encode()).hexdigest()

    def views(self, vector: Tensor) -> dict[str, Tensor]:
        """The tensors inside a vector, without copying."""
        return {s.name: vector[s.start : s.stop].view(s.shape) for s in self.slots}

    def trained(self, vector: Tensor) -> list[Tensor]:
        """Those of them that are trained: running statistics are left out."""
        views = self.views(vector)
        return [views[slot.name] for slot in self.slots if slot.trained]

    @cached_property
    def halves(self) -> list[Slot]:
        """What the network holds in half precision."""
        return [slot for slot in self.slots if slot.dtype != torch.float32]

    def state(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Views as the network has them: those of half precision are copies."""
        cast = {slot.name: tensors[slot.name].to(slot.dtype) for slot in self.halves}
        return {**tensors, **cast} if cast else tensors

    def flatten(self, module: nn.Module) -> Tensor:
        """The vector of a network's present values: a copy."""
        tensors = module.state_dict(keep_vars=True)
        parts = [tensors[s.name].detach().reshape(-1).to(torch.float32) for s in self.slots]
        return torch.cat(parts)

    def gather(self, gradients: Sequence[Tensor | None]) -> Tensor:
        """The vector of what belongs to the trained tensors, in their order; 0 elsewhere."""
        given = iter(gradients)
        like = next(g for g in gradients if g is not None)
        found = [next(given) if slot.trained else None for slot in self.slots]
        return torch.cat(
            [
                like.new_zeros(slot.stop - slot.start) if gradient is None else gradient.flatten()
                for slot, gradient in zip(self.slots, found, strict=True)
            ]
        ).float()


def _new_layer(before: Slot | None, slot: Slot) -> bool:
    return before is None or before.layer != slot.layer


def layout_of(module: nn.Module) -> Layout:
    """The layout of a network, or a reason why it cannot be a vector of float32."""
    slots: list[Slot] = []
    frozen: dict[str, Tensor] = {}
    seen: set[int] = set()
    start = 0
    for name, tensor in _tensors(module).items():
        if id(tensor) in seen:  # tied weights occupy one place
            continue
        seen.add(id(tensor))
        trained = isinstance(tensor, nn.Parameter) and tensor.requires_grad
        if not trained and _is_frozen(module, name, tensor):
            frozen[name] = tensor
            continue
        if tensor.dtype not in ((torch.float32, *HALF) if trained else (torch.float32,)):
            halves = ", float16 or bfloat16" if trained else ""
            raise UserError(
                f"model: {name} has dtype {tensor.dtype}; what travels must be float32{halves}"
            )
        stop = start + tensor.numel()
        slots.append(Slot(name, tuple(tensor.shape), start, stop, trained, tensor.dtype))
        start = stop
    if not any(slot.trained for slot in slots):
        raise UserError("model: it has no parameter to train")
    return Layout(tuple(slots), _digest(frozen))


def frozen_norms(module: nn.Module) -> list[nn.Module]:
    """BatchNorms that nobody trains: they keep their statistics, in training as in evaluation."""
    norms = (part for part in module.modules() if isinstance(part, _NormBase))
    return [norm for norm in norms if _none_trained(norm)]


def _is_frozen(module: nn.Module, name: str, tensor: Tensor) -> bool:
    """Of what is not trained: a parameter, or a buffer that no training changes."""
    owner = module.get_submodule(name.rpartition(".")[0])
    fixed = not tensor.is_floating_point() or _none_trained(owner)
    return isinstance(tensor, nn.Parameter) or fixed


def _none_trained(part: nn.Module) -> bool:
    own = list(part.parameters(recurse=False))
    return bool(own) and not any(parameter.requires_grad for parameter in own)


def _digest(frozen: dict[str, Tensor]) -> str:
    if not frozen:
        return ""
    total = hashlib.sha256()
    for name, tensor in frozen.items():
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        total.update(flat.view(torch.uint8).numpy().data)
    return total.hexdigest()


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers in the order of the state dict, without BatchNorm's step counter."""
    counters = {
        f"{name}.num_batches_tracked" if name else "num_batches_tracked"
        for name, part in module.named_modules()
        if isinstance(part, _NormBase)
    }
    for name, part in module.named_modules():
        if isinstance(part, _NormBase) and part.momentum is None and part.track_running_stats:
            raise UserError(
                f"model: BatchNorm {name!r} has momentum=None, whose running mean depends on how"
                " many batches a node has seen; that count does not travel with the model. Set a"
                " momentum, or use GroupNorm"
            )
    state = module.state_dict(keep_vars=True)
    return {name: tensor for name, tensor in state.items() if name not in counters}
