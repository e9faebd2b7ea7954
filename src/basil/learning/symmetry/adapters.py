"""The symmetries of low-rank adapters: B·A stays the same for A ← R A, B ← B R⁻¹.

An adapter is a module that holds `lora_A` and `lora_B`, as PEFT names them: a linear map
each, or a dict of them by the adapter's name.
"""

from torch import nn

from basil.learning.layout import Layout
from basil.learning.symmetry.parts import Pair, Part


def adapters(network: nn.Module, layout: Layout) -> tuple[tuple[Pair, ...], bool]:
    """The pairs of all adapters, and whether anything else is trained."""
    slots = {slot.name: slot for slot in layout.slots}
    pairs: list[Pair] = []
    covered: set[str] = set()
    for name, module in network.named_modules():
        if not (hasattr(module, "lora_A") and hasattr(module, "lora_B")):
            continue
        inner = [f".{key}" for key in module.lora_A] if _named(module.lora_A) else [""]
        for key in inner:
            first, second = (
                slots.get(f"{name}.lora_{which}{key}.weight".removeprefix(".")) for which in "AB"
            )
            if first is None or second is None or {len(first.shape), len(second.shape)} != {2}:
                continue
            (r, fan_in), fan_out = first.shape, second.shape[0]
            makes, reads = Part(first.start, 1, r, fan_in), Part(second.start, fan_out, r, 1)
            pairs.append(Pair(f"{name}{key}", (makes,), (reads,)))
            covered |= {first.name, second.name}
    return tuple(pairs), not slots.keys() <= covered


def _named(held: object) -> bool:
    return isinstance(held, nn.ModuleDict)
