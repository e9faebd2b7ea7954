"""The networks and losses that a recipe can name.

Each network is built from the shape of one sample and the number of classes; one's own may do
without these.  Initial weights are drawn from a named stream (see `initialise`), so that all nodes
of a ring, and all runs with one seed, start from the same x⁰.
"""

import inspect
import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from basil.data.samples import IGNORED
from basil.errors import UserError
from basil.learning.language import causal_lm
from basil.table import PLAIN, Table, states

Shape = tuple[int, ...]
Loss = Callable[[Tensor, Tensor], Tensor]


def mlp(shape: Shape, classes: int, *, hidden: int = 100) -> nn.Module:
    """Three fully connected layers, in-100-100-classes: the paper's MNIST network (Table I)."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(shape), hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )


class PooledConv2d(nn.Conv2d):
    """Convolution, ReLU, max-pooling.

    Bias and ReLU follow the pooling: the same function as the other way round, since both are
    monotone, on a ninth or a sixteenth of the values.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, *, pool: int) -> None:
        super().__init__(inputs, outputs, kernel)
        self.pool = pool

    def forward(self, x: Tensor) -> Tensor:
        assert self.bias is not None
        pooled = nn.functional.max_pool2d(nn.functional.conv2d(x, self.weight), self.pool)
        return (pooled + self.bias.view(-1, 1, 1)).relu()


class Crop(nn.Module):
    """The upper left corner of an image."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        return x[..., : self.size, : self.size]


def cifar_cnn(shape: Shape, classes: int) -> nn.Module:
    """Two convolutions and three fully connected layers: the paper's CIFAR network (Table II).

    Its second pooling takes one 4×4 window of 7×7 values and leaves the others out.  That window
    sees 7×7 of the first pooling's 10×10 values, these 21×21 of the first convolution's 30×30, and
    these 23×23 of the image's 32×32 pixels.  So the image is cropped to what is seen: the same
    function and the same gradients for less than half of the work.
    """
    if shape != (3, 32, 32):
        raise UserError(f"model cifar-cnn takes images of 3×32×32, not {'×'.join(map(str, shape))}")
    return nn.Sequential(
        Crop(23),
        PooledConv2d(3, 16, 3, pool=3),
        PooledConv2d(16, 64, 4, pool=4),
        nn.Flatten(),
        nn.Linear(64, 384),
        nn.ReLU(),
        nn.Linear(384, 192),
        nn.ReLU(),
        nn.Linear(192, classes),
    )


class Residual(nn.Module):
    """x + f(x), with two convolutions in f."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(_normed(channels, channels), _normed(channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        inner: Tensor = self.inner(x)
        return x + inner


def _normed(inputs: int, outputs: int) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())


def resnet(shape: Shape, classes: int, *, width: int = 16) -> nn.Module:
    """Six convolutions with BatchNorm and two residual blocks, for images of 3×32×32.

    The shape of ResNet-9, which the fast trainings of CIFAR-10 use, with a quarter of its channels.
    """
    if shape != (3, 32, 32):
        raise UserError(f"model resnet takes images of 3×32×32, not {'×'.join(map(str, shape))}")
    w = width
    return nn.Sequential(
        _normed(3, w),
        _normed(w, 2 * w),
        nn.MaxPool2d(2),
        Residual(2 * w),
        _normed(2 * w, 4 * w),
        nn.MaxPool2d(2),
        _normed(4 * w, 8 * w),
        nn.MaxPool2d(2),
        Residual(8 * w),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(8 * w, classes),
    )


def gelu(shape: Shape, classes: int, *, hidden: int = 100) -> nn.Module:
    """Three fully connected layers with GELU and LayerNorm: hardly a symmetry of scale is left."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(shape), hidden),
        nn.GELU(),
        nn.LayerNorm(hidden),
        nn.Linear(hidden, hidden),
        nn.GELU(),
        nn.LayerNorm(hidden),
        nn.Linear(hidden, classes),
    )


def corner(network: nn.Module) -> int | None:
    """The size of the upper left corner that is all a network looks at; None: the whole image."""
    first = network[0] if isinstance(network, nn.Sequential) and len(network) else None
    return first.size if isinstance(first, Crop) else None


def softmax(shape: Shape, classes: int) -> nn.Module:
    """Softmax regression: one linear layer, a convex problem (for Theorem 2)."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))


class CausalAttention(nn.Module):
    """Self-attention in which no token sees a later one; weights as nn.MultiheadAttention's."""

    bias_k = None

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.embed_dim, self.num_heads = width, heads
        self.in_proj, self.out_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, t, width = x.shape
        q, k, v = self.in_proj(x).view(n, t, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.out_proj(seen.transpose(1, 2).reshape(n, t, width))
        return out


class Block(nn.Module):
    """Attention, then two fully connected layers, each added to what went in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), CausalAttention(width, heads)
        self.after, self.wide = nn.LayerNorm(width), nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm(x))
        out: Tensor = x + self.narrow(nn.functional.gelu(self.wide(self.after(x))))
        return out


class TinyTransformer(nn.Module):
    """Tokens [n, length] to scores of the token that follows each, [n, length, vocabulary]."""

    def __init__(self, length: int, vocabulary: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.randn(length, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.norm(self.blocks(self.tokens(x) + self.positions)))
        return scores


def tiny_transformer(
    shape: Shape, classes: int, *, width: int = 32, depth: int = 2, heads: int = 2
) -> nn.Module:
    """A small transformer that predicts each next token, for data sets such as `text`."""
    if len(shape) != 1:
        raise UserError(f"model tiny-transformer takes rows of tokens, not {shape}")
    if min(width, depth, heads) < 1 or width % heads:
        raise UserError(
            f"learning.width = {width}, depth = {depth}, heads = {heads}: each must be 1 or more,"
            " and width a multiple of heads"
        )
    return TinyTransformer(shape[0], classes, width, depth, heads)


@states(regression=True)
def linear(shape: Shape, classes: int) -> nn.Module:
    """Least squares without an intercept: a quadratic problem (for Theorem 2)."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 1, bias=False), nn.Flatten(0))


TAKES = ("shape", "classes")
REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def builder(thing: Any) -> Any:
    """One's own network as an entry: a class or function that needs no arguments is called with
    its options alone, which are those of its arguments whose defaults a recipe can say.
    """
    if isinstance(thing, nn.Module):
        raise UserError("it is a network; name its class, or a function that makes it")
    try:
        parameters = inspect.signature(thing).parameters
    except ValueError:  # written in C: the table says so
        return thing
    kinds = {parameter.kind for parameter in parameters.values()}
    needs = [p for p in parameters.values() if p.default is p.empty and p.kind not in REST]
    if needs or inspect.Parameter.VAR_POSITIONAL in kinds or tuple(parameters)[:2] == TAKES:
        return thing

    def build(shape: Shape, classes: int, **options: Any) -> nn.Module:
        made: nn.Module = thing(**options)
        return made

    options = [
        p.replace(kind=p.KEYWORD_ONLY)
        for p in parameters.values()
        if p.kind is not p.POSITIONAL_ONLY and type(p.default) in PLAIN
    ]
    first = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in TAKES]
    build.__signature__ = inspect.Signature([*first, *options])  # type: ignore[attr-defined]
    build.__doc__ = thing.__doc__
    return states(regression=getattr(thing, "regression", False))(build)


MODELS = Table(
    "model",
    {
        "mlp": mlp,
        "cifar-cnn": cifar_cnn,
        "resnet": resnet,
        "gelu": gelu,
        "softmax": softmax,
        "tiny-transformer": tiny_transformer,
        "linear": linear,
        "causal-lm": causal_lm,
    },
    takes=TAKES,
    adapt=builder,
)


def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Appendix H-A: biases 0, convolutions Glorot uniform, other weights PyTorch's default."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.xavier_uniform_(part.weight, generator=generator)
        elif isinstance(part, nn.Linear):
            nn.init.kaiming_uniform_(part.weight, a=math.sqrt(5), generator=generator)
        if isinstance(part, nn.Conv2d | nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of each sample; of a sequence, the mean over its tokens that have a label."""
    if outputs.ndim == 2:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")
    each = nn.functional.cross_entropy(
        outputs.flatten(0, -2), targets.flatten(), reduction="none", ignore_index=IGNORED
    )
    return _over_tokens(each.view_as(targets), targets)


def half_squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """½ (output − target)² of each sample; of several targets, the mean."""
    if targets.ndim > 1 and outputs.shape != targets.shape:  # or one would be spread over others
        raise ValueError(f"outputs {list(outputs.shape)} for targets {list(targets.shape)}")
    each = (outputs - targets).square() / 2
    return each if targets.ndim == 1 else each.flatten(1).mean(1)


def right_share(outputs: Tensor, targets: Tensor) -> Tensor:
    """Is each sample classified right?  Of a sequence, the share of its tokens that are."""
    hits = outputs.argmax(-1) == targets
    return hits if targets.ndim == 1 else _over_tokens(hits.float(), targets)


def _over_tokens(values: Tensor, targets: Tensor) -> Tensor:
    """The mean over the tokens of each sample that have a label."""
    known = targets != IGNORED
    return values.where(known, 0).flatten(1).sum(1) / known.flatten(1).sum(1).clamp(min=1)


LOSSES = Table(
    "loss",
    {"cross-entropy": cross_entropy, "squares": half_squared_error},
    group="losses",
    takes=("outputs", "targets"),
)


def loss_named(name: str, options: dict[str, Any]) -> Loss:
    """The loss with its options; the same object for the same ones, so that kernels are shared."""
    return _bound(LOSSES[name], tuple(options.items())) if options else LOSSES[name]


@cache
def _bound(loss: Loss, options: tuple[tuple[str, Any], ...]) -> Loss:
    return partial(loss, **dict(options))
