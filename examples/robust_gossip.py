"""Another paper's experiment, twice: in plain PyTorch, and by Basil with pieces of one's own.

    python examples/robust_gossip.py [--byzantine 6] [--attacks dissensus] [--seeds 1] [--jobs 2]

Gaucher, Dieuleveut and Hendrikx (ICML 2025, arXiv 2410.10418) on MNIST: 26 honest nodes on Two
Worlds, b Byzantine neighbours of each, 200 steps.  Setting and formulas are those of their code
(renaudgaucher/Byzantine-Robust-Gossip: reproduce_mnist0.py, peerToPeerSparse.py, attacks/
identical_sparse.py, aggregators/).  `plainly` is that experiment step by step; `by_basil` names the
network, schedule, partition and attacks below in a recipe, and leaves rounds and rules to Basil.

Needs MNIST (basil data get mnist).  Prints the mean accuracy of the honest nodes at the end.
"""

import argparse
import itertools
import multiprocessing
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import basil
from basil.learning.models import initialise

HERE = Path(__file__).resolve()
HONEST, BRIDGES, BATCH, STEPS, MOMENTUM = 26, 8, 64, 200, 0.9
RULES = {"cs+": "CS₊-RG", "gts": "GTS-RG", "clipped-gossip": "ClippedGossip", "ios": "IOS"}
ATTACKS = ("foe", "alie", "dissensus", "spectral")


# The pieces, which both use.


def network(shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """`simples-minimalcnn`."""
    convolution = nn.Conv2d(shape[0], 16, 3, padding=1)
    wide = 16 * (shape[1] // 2) * (shape[2] // 2)
    return nn.Sequential(
        convolution, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(wide, classes)
    )


def stairs(k: int, rate: float, rounds: int, *, every: int = 40) -> float:
    """rate / (1 + ⌊(k − 1)/every⌋)."""
    return rate / (1 + (k - 1) // every)


def dirichlet(
    labels: np.ndarray, nodes: int, rng: np.random.Generator, *, alpha: float = 1.0
) -> list[np.ndarray]:
    """As many samples for each node, of each class in proportions from Dir(α), until it is out."""
    left = [rng.permutation(np.flatnonzero(labels == c)).tolist() for c in np.unique(labels)]
    wanted = rng.dirichlet([alpha] * len(left), nodes) * (len(labels) // nodes)
    dealt = [
        [
            pool.pop()
            for pool, n in zip(left, row, strict=True)
            for _ in range(min(int(n), len(pool)))
        ]
        for row in wanted
    ]
    rest = iter(rng.permutation([i for pool in left for i in pool]))
    for hand in dealt:
        hand += itertools.islice(rest, len(labels) // nodes - len(hand))
    dealt[-1] += rest
    return [np.array(hand, dtype=np.int64) for hand in dealt]


def lies(rule: str, attack: str, x: Tensor, weights: Tensor, byzantine: int) -> Tensor:
    """What each honest node j is told by its b Byzantine neighbours: x_j + c a_j.

    a_j is x̄ (fall of empires), the standard deviation (a little is enough), Σ_k W_jk (x_j − x_k)
    (dissensus), or v_j Σ_k v_k x_k with the Fiedler vector v (spectral heterogeneity).  c makes
    what j ends with as long as it gets.  (They mean as far as it gets from what the honest ones
    make of it: their `sub` is without its result.)
    """
    laplacian = weights.sum(1).diag() - weights
    fiedler = torch.linalg.eigh(laplacian).eigenvectors[:, 1]
    along = {
        "foe": x.mean(0).expand_as(x),
        "alie": x.std(0).expand_as(x),
        "dissensus": laplacian @ x,
        "spectral": fiedler.outer(fiedler @ x),
    }[attack]
    # All that is tried out lies in the span of these: so few coordinates will do.
    span = torch.linalg.qr(torch.cat([x, along[:1]]).double().T).Q
    small, direction = x.double() @ span, along.double() @ span

    def far(j: int) -> float:
        return longest(
            lambda c: outcome(rule, small, j, small[j] + c * direction[j], weights, byzantine)
        )

    lengths = x.new_tensor([far(j) for j in range(len(x))])
    return x + lengths[:, None] * along


def longest(made: Callable[[float], Tensor], tries: int = 16) -> float:
    """Which c ≥ 0 makes this longest: from step to step twice as far, and when that is too far
    back and forth in steps that shrink (their `line_maximize`).
    """
    best = at = 0.0
    highest, step, grows = float(made(0.0).square().sum()), 1.0, True
    for _ in range(tries - 1):
        at = best + step if grows or at < best else max(0.0, at - step)
        found = float(made(at).square().sum())
        grows = grows and found > highest
        if found > highest:
            best, highest = at, found
        step *= 2 if grows else 0.8
    return best


def outcome(rule: str, x: Tensor, j: int, lie: Tensor, weights: Tensor, byzantine: int) -> Tensor:
    """What node j makes of the honest models x and of b times the same lie."""
    w = torch.cat([weights[j], weights[j].max().expand(byzantine)]).to(x)
    w[j] = 1 - w.sum()
    step = communication_step(weights)
    return RULE_OF[rule](torch.cat([x, lie.expand(byzantine, -1)]), w, j, byzantine, step)


def communication_step(weights: Tensor) -> float:
    """η, one over the largest eigenvalue of the honest nodes' Laplacian."""
    return 1 / float(torch.linalg.eigvalsh(weights.sum(1).diag() - weights)[-1])


def worlds(byzantine: int) -> Tensor:
    """W of the honest nodes among themselves: Metropolis, with the Byzantine ones counted in."""
    half = HONEST // 2
    joined = torch.zeros(HONEST, HONEST)
    joined[:half, :half] = joined[half:, half:] = 1
    for i, k in itertools.product(range(half), range(BRIDGES)):
        joined[i, half + (i + k) % half] = joined[half + (i + k) % half, i] = 1
    joined.fill_diagonal_(0)
    degrees = joined.sum(1)
    return joined / (torch.maximum(degrees, degrees[:, None]) + 1 + byzantine)


# In plain PyTorch.


def plainly(rule: str, attack: str, byzantine: int, seed: int, steps: int) -> float:
    """Their loop: everybody takes a step, and then makes one model of its own and the others'."""
    data = basil.data.load("mnist", 0)
    scaled = [
        (torch.tensor(some.x[:, None] if some.x.ndim == 3 else some.x) - data.mean[0]) / data.std[0]
        for some in (data.train, data.test)
    ]
    labels = torch.tensor(data.train.y), torch.tensor(data.test.y)
    draw = np.random.default_rng(seed)
    hands = dirichlet(data.train.y, HONEST + byzantine, draw)[:HONEST]
    batches = [endless(hand, draw) for hand in hands]

    module = network((1, 28, 28), 10)
    initialise(module, torch.Generator().manual_seed(seed))
    x = parameters_to_vector(module.parameters()).detach().repeat(HONEST, 1)
    momentum = torch.zeros_like(x)
    weights = worlds(byzantine)

    for k in range(1, steps + 1):
        for j in range(HONEST):
            drawn = next(batches[j])
            vector_to_parameters(x[j].clone(), module.parameters())
            loss = cross_entropy(module(scaled[0][drawn]), labels[0][drawn])
            gradient = parameters_to_vector(torch.autograd.grad(loss, list(module.parameters())))
            momentum[j] = MOMENTUM * momentum[j] + (1 - MOMENTUM) * gradient
        x = x - stairs(k, 0.1, steps) * momentum
        if k == steps:  # Basil, too, shows what a node would send next
            break
        told = lies(rule, attack, x, weights, byzantine)
        made = [outcome(rule, x, j, told[j], weights, byzantine) for j in range(HONEST)]
        x = torch.stack(made)

    return 100 * float(np.mean([accuracy(model, module, scaled[1], labels[1]) for model in x]))


def accuracy(model: Tensor, module: nn.Module, images: Tensor, labels: Tensor) -> float:
    vector_to_parameters(model.clone(), module.parameters())
    with torch.no_grad():
        guessed = torch.cat([module(some).argmax(1) for some in images.split(500)])
    return float((guessed == labels).float().mean())


def endless(hand: np.ndarray, draw: np.random.Generator) -> Iterator[np.ndarray]:
    while True:
        shuffled = draw.permutation(hand)
        yield from (shuffled[i : i + BATCH] for i in range(0, len(hand) - BATCH + 1, BATCH))


def robust_gossip(
    clip: Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]],
) -> Callable[..., Tensor]:
    """x_j − η F((x_j − x_k)_k), F the sum with what `clip` makes of weights and lengths."""

    def rule(x: Tensor, w: Tensor, j: int, byzantine: int, step: float) -> Tensor:
        b = float(w[-1]) * byzantine
        apart, w = x[j] - x[w > 0], w[w > 0]
        lengths, order = apart.norm(dim=1).sort()
        kept, most = clip(w[order], lengths, b)
        shares = kept * (most / lengths.clamp(min=1e-30)).clamp(max=1)
        return x[j] - step * (shares @ apart[order])

    return rule


def cs_plus(w: Tensor, lengths: Tensor, b: float) -> tuple[Tensor, Tensor]:
    """Clip to the last length within which there is a weight of at most 1 − 2b."""
    within = int((w.cumsum(0) <= 1 - 2 * b + 1e-6).sum())
    return w, lengths[within - 1] if within else torch.tensor(0.0)


def gts(w: Tensor, lengths: Tensor, b: float) -> tuple[Tensor, Tensor]:
    """Leave out a weight of b, from the farthest on."""
    kept = torch.minimum(1 - b - (w.cumsum(0) - w), w)
    return torch.where(kept > 1e-6, kept, 0.0), torch.tensor(torch.inf)


def he(w: Tensor, lengths: Tensor, b: float) -> tuple[Tensor, Tensor]:
    """Clip to √(Σ w d² / b), over all but the farthest, which have a weight of b.

    (Where weights come out even, their `searchsorted` leaves out one more.)
    """
    near = w.cumsum(0) <= 1 - b + 1e-6
    return w, ((w * lengths.square())[near].sum() / b).sqrt()


def ios(x: Tensor, w: Tensor, j: int, byzantine: int, step: float) -> Tensor:
    """b times without the one that is farthest from the mean of those that are left."""
    w = w.clone()
    for _ in range(byzantine):
        apart = (x - w @ x / w.sum()).norm(dim=1)
        apart[w == 0] = apart[j] = -1.0
        w[apart.argmax()] = 0
    return w @ x / w.sum()


RULE_OF: dict[str, Callable[..., Tensor]] = {
    "cs+": robust_gossip(cs_plus),
    "gts": robust_gossip(gts),
    "clipped-gossip": robust_gossip(he),
    "ios": ios,
}


# By Basil.


def as_attack(attack: str) -> Callable[..., Mapping[int, Tensor]]:
    def lie(view: basil.View, *, against: str = "cs+") -> Mapping[int, Tensor]:
        assert view.benign is not None
        known = view.shared.get("told")
        if known is None or known[0] != view.round:  # all colluders say the same
            nodes, x = list(view.benign), torch.stack(list(view.benign.values()))
            weights = [[view.weights(j).get(k, 0.0) * (j != k) for k in nodes] for j in nodes]
            told = lies(against, attack, x, x.new_tensor(weights), len(view.colluders))
            known = view.shared["told"] = view.round, dict(zip(nodes, told, strict=True))
        said: Mapping[int, Tensor] = known[1]
        return said

    return lie


foe, alie, dissensus, spectral = (
    basil.declares(omniscient=True)(as_attack(name)) for name in ATTACKS
)


def by_basil(rule: str, attack: str, byzantine: int, seed: int, steps: int) -> float:
    scheme = {"name": rule, "momentum": MOMENTUM, "rounds": steps, "canonical": False}
    if rule in ("cs+", "gts"):
        scheme["step"] = communication_step(worlds(byzantine))
    recipe = {
        "seed": seed,
        "data": {"dataset": "mnist", "partition": f"{HERE}:dirichlet"},
        "ring": {"nodes": HONEST + byzantine, "byzantine": byzantine},
        "graph": {"name": "two-worlds", "bridges": BRIDGES, "weights": "metropolis"},
        "scheme": scheme,
        "learning": {
            "model": f"{HERE}:network",
            "schedule": f"{HERE}:stairs",
            "rate": 0.1,
            "batch": BATCH,
        },
        "attack": {"name": f"{HERE}:{attack}", "against": rule},
        "record": {"every": steps, "models": False},
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        result = basil.run(recipe, out=f"{folder}/run")
    return 100 * float(result.summary["accuracy"]["mean"])


@dataclass(frozen=True)
class Case:
    rule: str
    attack: str
    byzantine: int
    seed: int
    steps: int


def ends(case: Case) -> tuple[float, float]:
    torch.set_num_threads(1)
    given = case.rule, case.attack, case.byzantine, case.seed, case.steps
    return plainly(*given), by_basil(*given)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--byzantine", type=int, default=6)
    parser.add_argument("--attacks", nargs="+", choices=ATTACKS, default=ATTACKS)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    grid = itertools.product(args.attacks, RULES, range(args.seeds))
    cases = [Case(rule, attack, args.byzantine, s, args.steps) for attack, rule, s in grid]
    print("| attack | rule | in plain PyTorch | by Basil | difference |")
    print("| --- | --- | --- | --- | --- |")
    with ProcessPoolExecutor(args.jobs, multiprocessing.get_context("spawn")) as pool:
        found = pool.map(ends, cases)
        for attack, rule in itertools.product(args.attacks, RULES):
            pairs = np.array(list(itertools.islice(found, args.seeds)))
            plain, ours = pairs.mean(0)
            print(
                f"| {attack} | {RULES[rule]} | {plain:.1f} | {ours:.1f} | {ours - plain:+.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
