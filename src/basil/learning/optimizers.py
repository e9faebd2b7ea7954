"""How a gradient becomes a step: optimisers as functions of flat vectors.

What an optimiser remembers (momentum, second moments) is a dict of plain values.  It belongs to its
node, lies in its checkpoints, and is never sent.  `learning.optimizer_state` says what a node still
has of it in its next turn, which comes a lap later and goes on from another node's model:
everything (docs/research/optimizers.md), or nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from basil.errors import UserError
from basil.table import Table

Remembered = dict[str, Any]
PREFIX = "optimizer."  # of its keys in a node's memory
KEPT, STATES = "kept", ("kept", "none")


def sgd(
    model: Tensor,
    gradient: Tensor,
    rate: float,
    remembered: Remembered,
    *,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    clip: float = 0.0,
) -> Tensor:
    """x ← x − rate · m with m ← momentum · m + g, as torch.optim.SGD does.

    weight_decay: λ x is added to the gradient.  clip: the largest norm of a gradient; 0: any.
    """
    gradient = _clipped(gradient, clip)
    if weight_decay:
        gradient = gradient + weight_decay * model
    if momentum:
        last = remembered.get("momentum")
        gradient = gradient if last is None else gradient.add(last, alpha=momentum)
        remembered["momentum"] = gradient
    return model.sub(gradient, alpha=rate)


def adamw(
    model: Tensor,
    gradient: Tensor,
    rate: float,
    remembered: Remembered,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.01,
    clip: float = 0.0,
) -> Tensor:
    """AdamW (Loshchilov and Hutter 2019), as torch.optim.AdamW does."""
    gradient = _clipped(gradient, clip)
    zero = torch.zeros_like(model)
    first: Tensor = remembered.get("momentum", zero).lerp(gradient, 1 - beta1)
    second: Tensor = remembered.get("second", zero).lerp(gradient.square(), 1 - beta2)
    steps = remembered.get("steps", 0) + 1
    remembered |= {"momentum": first, "second": second, "steps": steps}
    size = (second / (1 - beta2**steps)).sqrt() + epsilon
    return model.mul(1 - rate * weight_decay).addcdiv(first, size, value=-rate / (1 - beta1**steps))


def _clipped(gradient: Tensor, most: float) -> Tensor:
    if not most:
        return gradient
    norm = torch.linalg.vector_norm(gradient)
    return gradient.mul(most / norm.clamp(min=most))


Step = Callable[..., Tensor]
OPTIMIZERS: Table[Step] = Table(
    "optimizer",
    {"sgd": sgd, "adamw": adamw},
    takes=("model", "gradient", "rate", "remembered"),
)


@dataclass(frozen=True)
class Optimizer:
    """An entry of the table with its options, and what is kept from turn to turn."""

    name: str = "sgd"
    options: tuple[tuple[str, Any], ...] = ()
    state: str = KEPT

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise UserError(
                f"learning.optimizer_state = {self.state!r}: it is one of {', '.join(STATES)}"
            )

    @property
    def plain(self) -> bool:
        """Is it x ← x − rate · g, and nothing else?"""
        return self.name == "sgd" and not any(value for _, value in self.options)

    def step(self, model: Tensor, gradient: Tensor, rate: float, remembered: Remembered) -> Tensor:
        """The model after one step.  What is remembered is replaced, never changed in place."""
        return OPTIMIZERS[self.name](model, gradient, rate, remembered, **dict(self.options))

    def recall(self, memory: dict[str, Any]) -> Remembered:
        """At the beginning of a turn: what a node's memory holds for the optimiser."""
        return {key[len(PREFIX) :]: memory[key] for key in memory if key.startswith(PREFIX)}

    def keep(self, remembered: Remembered, memory: dict[str, Any]) -> None:
        """At its end."""
        if self.state == KEPT:
            memory |= {PREFIX + name: value for name, value in remembered.items()}


SGD = Optimizer()
