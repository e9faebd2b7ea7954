"""A model is a flat float32 vector; a layout says what lies where in it.

Attacks, distances, averages, the wire and the checkpoint see the vector; only `compute` sees the
network.  Floating-point buffers (BatchNorm's running statistics) belong to the model and travel
with it; only parameters are trained.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from basil.errors import UserError


@dataclass(frozen=True)
class Slot:
    """One tensor of the network: its name, its shape, and its place in the vector."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int
    trained: bool

    @property
    def layer(self) -> str:
        return self.name.rpartition(".")[0]


@dataclass(frozen=True)
class Layout:
    """All tensors of a network, one after the other."""

    slots: tuple[Slot, ...]

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
        """SHA-256 of names and shapes: two peers with the same one understand each other."""
        text = json.dumps([(s.name, s.shape, s.trained) for s in self.slots])
        return hashlib.sha256(text.encode()).hexdigest()

    def views(self, vector: Tensor) -> dict[str, Tensor]:
        """The tensors inside a vector, without copying."""
        return {s.name: vector[s.start : s.stop].view(s.shape) for s in self.slots}

    def flatten(self, module: nn.Module) -> Tensor:
        """The vector of a network's present values: a copy."""
        tensors = _tensors(module)
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
        )


def _new_layer(before: Slot | None, slot: Slot) -> bool:
    return before is None or before.layer != slot.layer


def layout_of(module: nn.Module) -> Layout:
    """The layout of a network, or a reason why it cannot be a vector of float32."""
    slots: list[Slot] = []
    seen: set[int] = set()
    start = 0
    for name, tensor in _tensors(module).items():
        if id(tensor) in seen:  # tied weights occupy one place
            continue
        seen.add(id(tensor))
        if tensor.dtype != torch.float32:
            raise UserError(
                f"model: {name} has dtype {tensor.dtype}; a model must be float32 throughout"
            )
        trained = isinstance(tensor, nn.Parameter) and tensor.requires_grad
        stop = start + tensor.numel()
        slots.append(Slot(name, tuple(tensor.shape), start, stop, trained))
        start = stop
    if not any(slot.trained for slot in slots):
        raise UserError("model: it has no parameter to train")
    return Layout(tuple(slots))


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers in the order of the state dict, without BatchNorm's step counter."""
    counters = {
        f"{name}.num_batches_tracked" if name else "num_batches_tracked"
        for name, part in module.named_modules()
        if isinstance(part, nn.modules.batchnorm._NormBase)
    }
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._NormBase) and (
            part.momentum is None and part.track_running_stats
        ):
            raise UserError(
                f"model: BatchNorm {name!r} has momentum=None, whose running mean depends on how"
                " many batches a node has seen; that count does not travel with the model. Set a"
                " momentum, or use GroupNorm"
            )
    state = module.state_dict(keep_vars=True)
    return {name: tensor for name, tensor in state.items() if name not in counters}
