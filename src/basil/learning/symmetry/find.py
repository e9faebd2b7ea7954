"""Find the symmetries of a network by following units through its graph (torch.fx).

Each tensor between input and output carries units along one axis.  What makes a unit (the rows of a
weight, its bias) and what reads it (the columns of the next weight) is noted on the way; a residual
sum makes two sets of units one; whatever a factor does not pass through freezes their scale.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from basil.learning.layout import Layout, Slot
from basil.learning.models import CausalAttention
from basil.learning.symmetry.adapters import adapters
from basil.learning.symmetry.drafts import Draft, Flow, heads_of, in_one_order, is_pair, units_of
from basil.learning.symmetry.kinds import (
    ELEMENTWISE,
    ELEMENTWISE_CALLS,
    HOMOGENEOUS,
    HOMOGENEOUS_CALLS,
    BatchNorm,
    Conv,
)
from basil.learning.symmetry.parts import Pair, Part, Symmetries
from basil.learning.symmetry.trace import shape_of, trace


def find(network: nn.Module, layout: Layout, sample: Tensor) -> Symmetries:
    """The symmetries of a network, found by tracing it; `sample`: some inputs.

    Where nothing but adapters is trained, theirs are all there are.
    """
    pairs, rest = adapters(network, layout)
    if pairs and not rest:
        return Symmetries(pairs=pairs)
    try:
        traced = trace(network, sample)
    except Exception as error:  # whatever a user's code makes of an unexpected kind of tensor
        reason = f"its forward() cannot be traced ({type(error).__name__})"
        return Symmetries(pairs=pairs, unknown=(reason,))
    return _Search(traced, layout).run()


class _Search:
    def __init__(self, traced: fx.GraphModule, layout: Layout) -> None:
        self.traced = traced
        # A tied weight has one slot, and several roles that would have to agree: left alone.
        uses: dict[int, int] = {}
        for parameter in traced.parameters():
            uses[id(parameter)] = 0
        for _, parameter in traced.named_parameters(remove_duplicate=False):
            uses[id(parameter)] += 1
        self.tied = {i for i, count in uses.items() if count > 1}
        self.slots: dict[str, Slot] = {slot.name: slot for slot in layout.slots}
        self.flows: dict[fx.Node, Any] = {}
        self.drafts: list[Draft] = []
        self.called: set[str] = set()
        self.pairs: list[Pair] = []
        self.unknown: dict[str, None] = {}

    def run(self) -> Symmetries:
        for node in self.traced.graph.nodes:
            self.flows[node] = self._step(node)
        roots = sorted({d.root() for d in self.drafts}, key=lambda d: d.number)
        roots = [draft for draft in roots if draft.makes]
        paired = [draft for draft in roots if is_pair(draft)]
        pairs = [Pair(d.name, tuple(d.makes), tuple(d.reads)) for d in paired]
        scaled = [units_of([d], d.whole) for d in roots if d.scales and d not in paired]
        ordered = [
            units_of(together)
            for together in in_one_order(roots)
            if all(d.orders and d not in paired for d in together)
            and any(d.reads for d in together)
        ]
        return Symmetries(tuple(scaled), tuple(ordered), (*pairs, *self.pairs), tuple(self.unknown))

    # -- the graph -------------------------------------------------------------------------------

    def _step(self, node: fx.Node) -> Any:
        match node.op:
            case "placeholder":
                return Flow()
            case "output":
                self._freeze(*self._inputs(node))
                return None
            case "call_module":
                return self._module(node, self.traced.get_submodule(str(node.target)))
            case "get_attr":
                return _Held(str(node.target))
            case _:
                return self._call(node)

    def _inputs(self, node: fx.Node) -> list[Any]:
        return [self.flows[n] for n in node.all_input_nodes]

    def _module(self, node: fx.Node, module: nn.Module) -> Any:
        flow, name = self._flow(node.args[0]), str(node.target)
        if name in self.called and any(True for _ in module.parameters()):
            return self._not_understood(node, f"{name} is applied more than once")
        self.called.add(name)
        handler = next((h for kinds, h in HANDLERS if isinstance(module, kinds)), None)
        if handler is not None:
            return handler(self, node, name, module, flow)
        return self._not_understood(node, type(module).__name__)

    def _call(self, node: fx.Node) -> Any:
        target, inputs = node.target, self._inputs(node)
        flows = [flow for flow in inputs if isinstance(flow, Flow)]
        if target in HOMOGENEOUS_CALLS:
            return self._through(flows[0])
        if target in ELEMENTWISE_CALLS:
            return self._bent(flows[0])
        if target in (operator.add, operator.iadd, torch.add, "add", "add_"):
            return self._sum(node, inputs)
        if target in (torch.flatten, "flatten", "view", "reshape", "contiguous", "mean"):
            return self._reshaped(node, flows[0]) if flows else Flow()
        if target is operator.getitem:
            inner = self.flows[node.args[0]]  # type: ignore[index]
            if isinstance(inner, tuple):
                return inner[node.args[1]]  # type: ignore[index]
            if isinstance(inner, Flow) and inner.draft is None:
                return inner
        if not flows or all(flow.draft is None for flow in flows):
            return Flow()  # of the input, or of sizes
        if target in ("size", "dim") or target is getattr:
            return None
        return self._not_understood(node, str(getattr(target, "__name__", target)))

    def _flow(self, arg: Any) -> Flow:
        flow = self.flows.get(arg) if isinstance(arg, fx.Node) else None
        return flow if isinstance(flow, Flow) else Flow()

    def _not_understood(self, node: fx.Node, what: str) -> Flow:
        """Worth a word if it is trained, or if units go through it to somewhere else."""
        inputs, last = self._inputs(node), all(user.op == "output" for user in node.users)
        trained = any(name.startswith(f"{node.target}.") for name in self.slots)
        if trained or (not last and any(isinstance(i, Flow) and i.draft for i in inputs)):
            self.unknown[what] = None
        self._freeze(*inputs)
        return Flow()

    # -- what can happen to units ------------------------------------------------------------------

    def _draft(self, name: str, size: int) -> Draft:
        draft = Draft(name, size, len(self.drafts))
        self.drafts.append(draft)
        return draft

    def _freeze(self, *flows: Any) -> None:
        """Neither scale nor order of these units is free."""
        for flow in flows:
            if isinstance(flow, Flow) and flow.draft is not None:
                draft = flow.draft.root()
                draft.scales = draft.orders = False

    def _through(self, flow: Flow) -> Flow:
        """A factor passes, a change of basis does not."""
        if flow.draft is not None:
            flow.draft.root().linear = False
        return flow

    def _bent(self, flow: Flow) -> Flow:
        """Order passes, a factor does not."""
        if flow.draft is not None:
            flow.draft.root().scales = False
        return self._through(flow)

    def _sum(self, node: fx.Node, inputs: list[Any]) -> Flow:
        """A residual connection: units that are added are scaled together."""
        held = [i for i in inputs if isinstance(i, _Held)]
        flows = [i for i in inputs if isinstance(i, Flow)]
        if len(flows) == 1 and len(held) == 1 and flows[0].draft is not None:
            return self._plus_held(node, flows[0], held[0])
        if len(flows) == 2 and flows[0].draft is not None and flows[1].draft is not None:
            a, b = flows[0].draft.root(), flows[1].draft.root()
            if replace(flows[0], draft=None) == replace(flows[1], draft=None) and a.size == b.size:
                self._merge(a, b)
                return flows[0]
        self._freeze(*inputs)
        return Flow()

    def _merge(self, a: Draft, b: Draft) -> None:
        if a is b:
            return
        first, second = (a, b) if a.number < b.number else (b, a)
        second.merged = first
        for mine, other in (
            (first.makes, second.makes),
            (first.squares, second.squares),
            (first.reads, second.reads),
        ):
            mine.extend(other)
        if first.normal and second.normal:  # a unit may live by one of them alone
            first.gauges.extend(second.gauges)
        first.follows.extend(second.follows)
        first.scales &= second.scales
        first.orders &= second.orders
        first.whole |= second.whole
        first.linear = False

    def _plus_held(self, node: fx.Node, flow: Flow, held: "_Held") -> Flow:
        """A parameter of its own that is added, such as an embedding of positions."""
        draft, slot = flow.draft, self.slots.get(held.name)
        assert draft is not None
        last = flow.axis == len(shape_of(node)) - 1
        if slot is not None and last and slot.shape and slot.shape[-1] == draft.root().size:
            before = (slot.stop - slot.start) // draft.root().size
            draft.root().makes.append(Part(slot.start, before, draft.root().size, 1))
            draft.root().linear = False
            return flow
        self._freeze(flow)
        return Flow()

    def _reshaped(self, node: fx.Node, flow: Flow) -> Flow:
        before, after = shape_of(node.args[0]), shape_of(node)
        if flow.draft is None or before == after:
            return flow
        if flow.axis == 1 and len(after) == 2:
            if node.target == "mean":  # over positions
                kept = after[1] == before[1]
                return self._through(flow) if kept else self._lost(node)
            size = flow.draft.root().size
            if after[1] % size == 0 and after[0] == before[0] and before[1] == size * flow.repeat:
                self._through(flow)
                return Flow(flow.draft, 1, after[1] // size)
        if node.target == "mean" and flow.axis == len(before) - 1 and after[-1] == before[-1]:
            return Flow(self._through(flow).draft, len(after) - 1, flow.repeat)
        return self._lost(node)

    def _lost(self, node: fx.Node) -> Flow:
        """A module that reshapes is an nn.Flatten."""
        name = "flatten" if node.op == "call_module" else node.target
        return self._not_understood(node, f"{getattr(name, '__name__', name)}()")

    # -- modules -----------------------------------------------------------------------------------

    def _slot(self, name: str) -> Slot | None:
        slot = self.slots.get(name)
        if slot is None:
            return None
        owner, _, leaf = name.rpartition(".")
        held = getattr(self.traced.get_submodule(owner) if owner else self.traced, leaf)
        return None if id(held) in self.tied else slot

    def _made(self, name: str, weight: str, size: int, before: int = 1) -> Draft:
        """New units, made by a weight and its bias."""
        draft, slot = self._draft(name, size), self._slot(weight)
        bias = self._slot(f"{name}.bias")
        if slot is None:
            draft.scales = draft.orders = False
            return draft
        after = (slot.stop - slot.start) // (before * size)
        draft.makes.append(Part(slot.start, before, size, after))
        draft.gauges.append(draft.makes[0])
        if bias is not None:
            draft.makes.append(Part(bias.start, 1, size, 1))
        elif getattr(self.traced.get_submodule(name), "bias", None) is not None:
            draft.scales = draft.orders = False  # frozen, or tied: it cannot follow a factor
        return draft

    def _read(self, flow: Flow, slot: Slot | None, axis: int, before: int, rest: int) -> None:
        """These units are read by a weight [before, units · repeat, rest]."""
        if flow.draft is None:
            return
        draft = flow.draft.root()
        if slot is None or flow.axis != axis:
            self._freeze(flow)
        else:
            draft.reads.append(Part(slot.start, before, draft.size, flow.repeat * rest))

    def _linear(self, node: fx.Node, name: str, module: nn.Linear, flow: Flow) -> Flow:
        last, weight = len(shape_of(node)) - 1, f"{name}.weight"
        self._read(flow, self._slot(weight), last, module.out_features, 1)
        draft = self._made(name, weight, module.out_features)
        draft.linear = True
        return Flow(draft, last)

    def _conv(self, node: fx.Node, name: str, module: Any, flow: Flow) -> Flow:
        weight, kernel = f"{name}.weight", int(module.weight[0, 0].numel())
        if module.groups == 1:
            self._read(flow, self._slot(weight), 1, module.out_channels, kernel)
        elif module.groups == module.in_channels == module.out_channels:
            self._read(flow, self._slot(weight), 1, 1, kernel)  # each channel by its own filter
        else:
            self._freeze(flow)
        if flow.draft is not None:
            flow.draft.root().linear = False
        draft = self._made(name, weight, module.out_channels)
        if module.groups > 1:
            self._follow(draft, flow)
        return Flow(draft)

    def _batch_norm(self, node: fx.Node, name: str, module: Any, flow: Flow) -> Flow:
        """Takes a factor of its input out, running statistics follow it; makes units of its own."""
        if flow.draft is not None:
            draft = self._through(flow).draft
            assert draft is not None
            stats = [self._slot(f"{name}.running_{kind}") for kind in ("mean", "var")]
            if flow.repeat > 1 or (module.running_mean is not None and None in stats):
                self._freeze(flow)
            elif stats[0] is not None and stats[1] is not None:
                draft.root().makes.append(Part(stats[0].start, 1, module.num_features, 1))
                draft.root().squares.append(Part(stats[1].start, 1, module.num_features, 1))
        return self._affine(name, module, module.num_features, 1, flow)

    def _layer_norm(self, node: fx.Node, name: str, module: Any, flow: Flow) -> Flow:
        """Takes out a factor that all units share."""
        last = len(shape_of(node)) - 1
        shape: tuple[int, ...] = tuple(module.normalized_shape)
        if flow.draft is not None:
            if len(shape) == 1 and flow.axis == last and flow.repeat == 1:
                self._through(flow)
                flow.draft.root().whole = True
            else:
                self._freeze(flow)
        return self._affine(name, module, shape[0], last, flow) if len(shape) == 1 else Flow()

    def _affine(self, name: str, module: Any, size: int, axis: int, flow: Flow) -> Flow:
        """Units that stand in the order of those they are made of."""
        if module.weight is None:
            self._freeze_order(flow)
            return Flow()
        draft = self._made(name, f"{name}.weight", size)
        draft.normal, draft.gauges = True, draft.makes[:]
        self._follow(draft, flow)
        return Flow(draft, axis)

    def _follow(self, draft: Draft, flow: Flow) -> None:
        if flow.draft is None:
            draft.orders = False
        else:
            draft.follows.append(flow.draft)

    def _freeze_order(self, flow: Flow) -> None:
        if flow.draft is not None:
            flow.draft.root().orders = False

    def _embedding(self, node: fx.Node, name: str, module: nn.Embedding, flow: Flow) -> Flow:
        before, size = module.num_embeddings, module.embedding_dim
        return Flow(self._made(name, f"{name}.weight", size, before), len(shape_of(node)) - 1)

    def _attention(
        self, node: fx.Node, name: str, module: nn.MultiheadAttention | CausalAttention, flow: Flow
    ) -> Any:
        inner = f"{name}.in_proj{'.' if isinstance(module, CausalAttention) else '_'}"
        weight, bias = self._slot(f"{inner}weight"), self._slot(f"{inner}bias")
        biased = {"in_proj_bias", "in_proj.bias"} & dict(module.named_parameters()).keys()
        if weight is None or module.bias_k is not None or (biased and bias is None):
            return (self._not_understood(node, "MultiheadAttention with other sizes"), None)
        E, heads = module.embed_dim, module.num_heads
        axis = len(shape_of(node.args[0])) - 1
        for i in range(3):  # rows of q, k and v
            arg = node.args[i % len(node.args)]
            own = Slot(weight.name, (E, E), weight.start + i * E * E, 0, True)
            self._read(self._flow(arg), own, axis, E, 1)
            self._through(self._flow(arg))
        out = self._made(f"{name}.out_proj", f"{name}.out_proj.weight", E)
        read_out = self._slot(f"{name}.out_proj.weight")
        self.pairs.extend(heads_of(name, E, heads, weight, bias, read_out))
        made = Flow(out, axis)
        return made if isinstance(module, CausalAttention) else (made, None)


@dataclass(frozen=True)
class _Held:
    """A parameter or buffer that the network uses directly."""

    name: str


Handler = Callable[[_Search, fx.Node, str, Any, Flow], Any]
HANDLERS: list[tuple[Any, Handler]] = [
    (nn.Linear, _Search._linear),
    (Conv, _Search._conv),
    (BatchNorm, _Search._batch_norm),
    ((nn.LayerNorm, nn.RMSNorm), _Search._layer_norm),
    (nn.Embedding, _Search._embedding),
    ((nn.MultiheadAttention, CausalAttention), _Search._attention),
    (HOMOGENEOUS, lambda search, node, name, module, flow: search._through(flow)),
    (ELEMENTWISE, lambda search, node, name, module, flow: search._bent(flow)),
    (nn.Flatten, lambda search, node, name, module, flow: search._reshaped(node, flow)),
    (nn.Identity, lambda search, node, name, module, flow: flow),
]
