"""What can be changed in a network's weights without a change of its outputs, and the cure."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import normalize

from basil import data
from basil.learning.layout import Layout, layout_of
from basil.learning.models import cifar_cnn, gelu, mlp, resnet, tiny_transformer
from basil.learning.symmetry import Canonical, Symmetries, find
from basil.learning.symmetry.canonical import LOUD
from basil.learning.symmetry.copies import has_copies, separable
from basil.learning.symmetry.order import places
from basil.learning.symmetry.parts import SLACK
from basil.learning.symmetry.typical import middle_mean, typical


class Block(nn.Module):
    """relu(x + f(x)): a residual block without normalisation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, channels, 3, padding=1)
        self.two = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.two(nn.functional.leaky_relu(self.one(x))))


class Encoder(nn.Module):
    """LayerNorm and attention, as a transformer has them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Linear(12, 16), nn.LayerNorm(16)
        self.attend = nn.MultiheadAttention(16, 4, batch_first=True)
        self.after, self.wide = nn.LayerNorm(16), nn.Linear(16, 32)
        self.narrow, self.head = nn.Linear(32, 16), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        normed = self.norm(x)
        x = x + self.attend(normed, normed, normed)[0]
        x = x + self.narrow(nn.functional.gelu(self.wide(self.after(x))))
        return self.head(x.mean(1))


class LowRank(nn.Module):
    """W x + B A x, as an adapter has it; B is not 0, as after some training."""

    def __init__(self) -> None:
        super().__init__()
        self.full, self.a = nn.Linear(20, 30), nn.Linear(20, 4, bias=False)
        self.b, self.head = nn.Linear(4, 30, bias=False), nn.Linear(30, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.full(x) + self.b(self.a(x))))


class Branching(nn.Module):
    """What cannot be traced."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(20, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) if x.sum() > 0 else -self.linear(x)


def images(side: int) -> Tensor:
    return torch.randn(3, 3, side, side, generator=torch.Generator().manual_seed(1))


def rows(*shape: int) -> Tensor:
    return torch.randn(3, *shape, generator=torch.Generator().manual_seed(1))


NETWORKS = {
    "mlp": (lambda: mlp((20,), 5, hidden=30), rows(20)),
    "cifar-cnn": (lambda: cifar_cnn((3, 32, 32), 10), images(32)),
    "batch norm": (lambda: resnet((3, 32, 32), 10, width=4), images(32)),
    "residual": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.ReLU(), Block(8), nn.Dropout(), Block(8),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5),
        ),
        images(12),
    ),
    "depthwise": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.ReLU(),
            nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 16, 5),
        ),
        images(12),
    ),
    "attention": (Encoder, rows(7, 12)),
    "low rank": (LowRank, rows(20)),
    "gelu": (lambda: gelu((20,), 5, hidden=30), rows(20)),
    "transformer": (
        lambda: tiny_transformer((6,), 12, width=8, depth=1),
        torch.arange(18).view(3, 6) % 12,
    ),
}  # fmt: skip


class Case:
    def __init__(self, kind: str, seed: int) -> None:
        build, self.x = NETWORKS[kind]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network: nn.Module = build().eval()
            for name, buffer in self.network.named_buffers():
                if name.endswith("running_var"):
                    buffer.uniform_(0.5, 2.0)
        self.layout: Layout = layout_of(self.network)
        self.initial = self.layout.flatten(self.network)
        draw = torch.Generator().manual_seed(seed + 1)
        noise = torch.randn(self.initial.shape, generator=draw)
        self.model = self.initial * (1 + 0.2 * noise.clamp(-2, 2))  # some way from x⁰
        self.symmetries: Symmetries = find(self.network, self.layout, self.x)
        self.canonical = Canonical(self.symmetries, self.initial)

    def outputs(self, model: Tensor) -> Tensor:
        return functional_call(self.network, self.layout.views(model), (self.x,)).detach()

    def moved(self, seed: int, most: float = math.log(10)) -> Tensor:
        """Another of the orbit: any order, factors up to e^most, bases far from orthogonal."""
        draw, moved = torch.Generator().manual_seed(seed), self.model.clone()
        for units in self.symmetries.scaled:
            count = 1 if units.whole else units.size
            units.scale(moved, ((2 * torch.rand(count, generator=draw) - 1) * most).exp())
        for pair in self.symmetries.pairs:
            # Stretched up to 30 times as much one way as another: rounding costs the more.
            left, right = torch.randn(2, pair.size, pair.size, generator=draw, dtype=torch.float64)
            sizes = 30 ** torch.rand(pair.size, generator=draw, dtype=torch.float64)
            R = torch.linalg.qr(left)[0] * sizes @ torch.linalg.qr(right)[0]
            pair.transform(moved, R, torch.linalg.inv(R))
        for units in self.symmetries.ordered:
            units.permute(moved, torch.randperm(units.size, generator=draw))
        return moved


@pytest.mark.parametrize("kind", NETWORKS)
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 300))
def test_all_models_that_are_one_function_have_one_form(kind: str, seed: int) -> None:
    """Up to the slack below which a factor is left out, and what rounding makes of it.

    (Of a thousand transformers this small one, 324, has units that cannot be told apart.)
    """
    case = Case(kind, seed)
    assert case.symmetries.scaled or case.symmetries.pairs
    moved = case.moved(seed)
    assert not torch.allclose(moved, case.model, rtol=0.1)
    one, other = case.canonical(case.model), case.canonical(moved)
    # A basis mixes the entries of a row: the slack of a large one is then a small one's, too.
    small = 0.1 if case.symmetries.pairs else 1e-3
    apart = (one - other).abs() / (one.abs() + small * one.abs().max())
    assert apart.max() < 10 * SLACK


@pytest.mark.parametrize("kind", NETWORKS)
def test_no_output_changes(kind: str) -> None:
    case = Case(kind, 3)
    before = case.outputs(case.model)
    # Normalisation adds ε to a variance: with factors this far from 1 that shows.
    normed = kind in ("batch norm", "attention", "transformer")
    rtol, atol = (1e-2, 1e-2) if normed else (1e-3, 1e-5)
    assert torch.allclose(case.outputs(case.moved(3)), before, rtol, atol)
    assert torch.allclose(case.outputs(case.canonical(case.model)), before, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", NETWORKS)
def test_what_is_in_form_stays_as_it_is_bit_for_bit(kind: str) -> None:
    case = Case(kind, 4)
    form = case.canonical(case.moved(4))
    assert torch.equal(case.canonical(form), form)


def test_a_layer_by_hand() -> None:
    """One hidden unit with weights 1, 2, 6 and x⁰'s 2, 2, 2: the largest decides where few are.

    Both layers together are 3 · 5 times x⁰'s: each becomes √15 times its own.
    """
    network = nn.Sequential(nn.Linear(3, 1), nn.ReLU(), nn.Linear(1, 1))
    layout = layout_of(network)
    initial = torch.tensor([2.0, 2.0, 2.0, 0.0, 1.0, 0.0])
    canonical = Canonical(find(network, layout, torch.zeros(2, 3)), initial)
    form = canonical(torch.tensor([1.0, 2.0, 6.0, 3.0, 5.0, 7.0]))
    factor = math.sqrt(15) / 3
    made, read = torch.tensor([1.0, 2.0, 6.0, 3.0]), torch.tensor([5.0])
    assert torch.allclose(form, torch.cat([factor * made, read / factor, torch.tensor([7.0])]))


@pytest.mark.parametrize("kind", ["batch norm", "gelu"])
def test_a_unit_of_a_normalisation_may_live_by_its_bias(kind: str) -> None:
    """Trained, the factor of a channel can vanish: then its bias says how large it is.

    (Measured by the factor alone, biases of ½ become 500, and the next step goes nowhere.)
    """
    case = Case(kind, 3)
    norms = [units for units in case.symmetries.scaled if units.gauge.after == 1]
    assert norms
    for units in norms:
        for weight, bias in zip(units.gauges[::2], units.gauges[1::2], strict=True):
            weight.of(case.model)[:, 0] = 1e-3
            bias.of(case.model)[:, 0] = 0.5
    form = case.canonical(case.model)
    for units in norms:
        sizes = units.measured(form).abs().amax(1)
        assert torch.allclose(sizes, sizes[:1], rtol=4 * SLACK)
        assert torch.allclose(units.measured(form)[0].abs().amax(), sizes[0])
    assert torch.allclose(case.outputs(form), case.outputs(case.model), rtol=1e-3, atol=1e-4)


def test_what_is_added_is_measured_together() -> None:
    """Channels of two normalisations, of which either may be all that a residual sum is made of."""
    case = Case("batch norm", 3)
    added = [units for units in case.symmetries.scaled if len(units.gauges) == 4]
    assert len(added) == 2
    for units in added:
        for part in units.gauges[:2]:
            part.of(case.model)[:, 0] *= 1e-3
    form = case.canonical(case.model)
    for units in added:
        assert units.measured(form).abs().amax() < 10 * units.measured(case.model).abs().amax()


def test_typical_is_the_mean_of_the_middle_half_and_less_than_a_quarter_cannot_move_it() -> None:
    row = torch.arange(1.0, 22.0)
    heavy = torch.where(row > 16, 1e9, row)
    assert typical(torch.stack([row, heavy])).tolist() == [11.0, 11.0]
    assert typical(torch.tensor([[0.0] * 15 + [3.0, -4.0]])).tolist() == [4.0]  # all but zero


@given(st.integers(0, 1000), st.integers(16, 60))
def test_the_middle_mean_is_what_a_sort_gives(seed: int, count: int) -> None:
    """Equal values included."""
    draw = torch.Generator().manual_seed(seed)
    rows = torch.randn(3, count, generator=draw).abs()
    rows[1] = rows[1].mul(3).round()
    aside = count // 4
    expected = rows.sort(1).values[:, aside : count - aside].mean(1)
    assert torch.allclose(middle_mean(rows, aside), expected, atol=1e-6)


def test_all_layers_grow_alike() -> None:
    """Times 2, 3 and 4: each becomes ∛24 times what it was.  A head of zeros says nothing."""
    case = Case("mlp", 8)
    start, grown = case.canonical(case.initial), case.canonical(case.initial)
    for name, factor in {"1": 2.0, "3": 3.0, "5": 4.0}.items():
        case.layout.views(grown)[f"{name}.weight"].mul_(factor)
    before, after = (case.layout.views(m) for m in (start, case.canonical(grown)))
    for name in ("1", "3", "5"):
        ratio = after[f"{name}.weight"] / before[f"{name}.weight"]
        assert torch.allclose(ratio, torch.tensor(24 ** (1 / 3)), rtol=2 * SLACK)
    blank = case.initial.clone()
    case.layout.views(blank)["5.weight"].zero_()
    canonical = Canonical(case.symmetries, blank)
    rows = case.layout.views(canonical(grown))["3.weight"]
    assert torch.allclose(typical(rows), typical(case.layout.views(start)["3.weight"]), rtol=1e-2)


@pytest.mark.parametrize("many", [False, True])
def test_what_no_sample_sees_is_made_no_larger_than_is_typical(many: bool) -> None:
    """Once more than a quarter of the units are silent."""
    case = Case("mlp", 7)
    form = case.canonical(case.model)
    biases, weights = (case.layout.views(form)[name] for name in ("1.bias", "3.weight"))
    size = weights.abs().sort(1).values[:, 7:23].mean(1)
    silent, active = (range(8), range(8, 30)) if many else (range(7), range(7, 30))
    biases[list(silent)], biases[list(active)] = -1e6, 10.0
    weights[:, 4], weights[2, 9] = 50.0, 50.0  # of a silent unit, and of an active one
    lie = form.clone().requires_grad_()
    functional_call(case.network, case.layout.views(lie), (case.x,)).sum().backward()
    assert lie.grad is not None
    before = weights.clone()
    most = case.canonical.limits(form, lie.grad, case.canonical.sizes)
    form.clamp_(-most, most)
    assert torch.equal(weights[:, 8:], before[:, 8:])
    if many:
        assert torch.allclose(weights[:, 4], size, rtol=2 * SLACK)
        assert weights[:, :8].abs().max() <= 1.0001 * size.max()
    else:
        assert torch.equal(weights, before)


def twinned(case: Case, honest: Tensor, weight: float, apart: float = 0.0) -> Tensor:
    """Unit 5 of the second layer as unit 7, `apart` of its lengths from it, and read with ∓c."""
    lie = honest.clone()
    views = case.layout.views(lie)
    row, noise = views["3.weight"][7], torch.randn(30, generator=torch.Generator().manual_seed(0))
    views["3.weight"][5] = row + apart * row.norm() * normalize(noise, dim=0)
    views["3.bias"][5] = views["3.bias"][7]
    reads = views["5.weight"]
    c = weight * reads.abs().mean()
    reads[:, 5], reads[:, 7] = -c, reads[:, 7] + c
    return lie


@pytest.mark.parametrize("weight", [1.0, 30.0, 1e3])
def test_of_two_that_are_the_same_one_begins_anew(weight: float) -> None:
    """No output shows c, a gradient would."""
    case = Case("mlp", 9)
    lie = twinned(case, case.canonical(case.model), weight)
    form = case.canonical(lie)
    assert torch.allclose(case.outputs(form), case.outputs(lie), atol=2e-6 * max(10, weight))
    views, first = case.layout.views(form), case.layout.views(case.initial)
    assert not views["5.weight"][:, 5].any()
    cosine = torch.cosine_similarity(views["3.weight"], first["3.weight"])
    assert cosine[5] == pytest.approx(1)
    assert cosine[7] < 0.999
    assert torch.equal(case.canonical(form), form)


@pytest.mark.parametrize("kind", ["mlp", "cifar-cnn", "batch norm", "residual", "low rank"])
def test_a_copy_is_known_in_each_layer(kind: str) -> None:
    case = Case(kind, 1)
    layers = separable(case.symmetries, case.initial)
    assert layers
    for units in layers:
        lie = case.model.clone()
        for part in (*units.makes, *units.squares):
            part.of(lie)[:, 0] = part.of(lie)[:, 1]
        form = case.canonical(lie)
        assert torch.allclose(case.outputs(form), case.outputs(lie), rtol=1e-3, atol=1e-4)
        assert not any(part.of(form)[:, 0].any() for part in units.reads)
        assert torch.equal(case.canonical(form), form)


def test_heavy_weights_in_common_make_no_copies() -> None:
    """From a unit that no sample activates: no output shows how heavy they are."""
    case = Case("mlp", 2)
    lie = case.model.clone()
    case.layout.views(lie)["1.bias"][4] = -1000.0
    case.layout.views(lie)["3.weight"][:, 4] = 100.0
    assert torch.allclose(case.outputs(case.canonical(lie)), case.outputs(lie), atol=1e-4)


def test_what_a_normalisation_looks_at_is_nobodys_copy() -> None:
    """Nor what comes near another by chance, having few weights."""
    for kind in ("gelu", "attention", "transformer", "depthwise"):
        case = Case(kind, 0)
        assert separable(case.symmetries, case.initial) == ()
    torch.manual_seed(0)
    small = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))  # in x⁰ far from each other
    layout = layout_of(small)
    symmetries = find(small, layout, torch.zeros(2, 6))
    assert separable(symmetries, layout.flatten(small)) == ()


def test_where_x0_has_nearly_the_same_unit_twice_both_stay() -> None:
    """A network that comes trained may have such, and lives by them."""
    case = Case("mlp", 9)
    trained = twinned(case, case.initial, 1.0, apart=0.4)
    assert [units.name for units in separable(case.symmetries, trained)] == ["1"]
    canonical = Canonical(case.symmetries, trained)
    assert torch.allclose(case.outputs(canonical(trained)), case.outputs(trained), atol=1e-5)
    assert not canonical.alike(case.canonical)


@pytest.mark.parametrize("weight", [30.0, 1e6])
def test_units_that_nearly_cancel_each_other_cannot_be_loud(weight: float) -> None:
    case = Case("mlp", 9)
    honest = case.canonical(case.model)
    form = case.canonical(twinned(case, honest, weight, apart=0.5))
    sizes = case.layout.views(form)["5.weight"].norm(dim=0)
    assert sizes[5] > 0
    first = case.layout.views(case.initial)["5.weight"].norm(dim=0)
    assert sizes.max() / sizes.median() < 1.01 * LOUD * first.max() / first.median()
    assert torch.equal(case.canonical(form), form)
    # Who is not loud is read as before, but for the scale of all.
    others, before = case.layout.views(form)["5.weight"], case.layout.views(honest)["5.weight"]
    ratio = (others / before)[:, [*range(5), 6, *range(8, 30)]]
    assert ratio.std() < 1e-3 * ratio.mean()


@pytest.mark.parametrize("layer", ["0.1", "6.1"])
def test_before_a_normalisation_a_unit_may_be_as_loud_as_it_likes(layer: str) -> None:
    """What honest training makes so; of 6.1, which the output reads too, it is a lie."""
    case = Case("batch norm", 3)
    (units,) = (units for units in case.symmetries.scaled if units.name == layer)
    for part in units.reads:
        part.of(case.model)[:, 1] *= 20
    outputs = case.outputs(case.model)
    stays = torch.allclose(case.outputs(case.canonical(case.model)), outputs, rtol=1e-3, atol=1e-4)
    assert stays == (layer == "0.1")


@pytest.mark.parametrize(("units", "entries"), [(384, 64), (192, 256)])
@pytest.mark.parametrize("cosine", [0.2, 0.3, 0.5])
def test_what_training_has_turned_away_is_not_taken_for_another(
    units: int, entries: int, cosine: float
) -> None:
    """Of 384 units some resemble another's beginning by 0.4, by chance, and their own by 0.3."""
    draw = torch.Generator().manual_seed(3)
    first, noise = torch.randn(2, units, entries, generator=draw)
    now = normalize(cosine * normalize(first) + math.sqrt(1 - cosine**2) * normalize(noise))
    order = places(normalize(first), now)
    assert order is None or (order != torch.arange(units)).sum() <= max(2, units // 50)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("units", [16, 100, 384])
@pytest.mark.parametrize("kind", ["the same", "moved", "turned", "strangers", "twins"])
def test_on_a_gpu_units_find_the_same_places(units: int, kind: str) -> None:
    draw = torch.Generator().manual_seed(4)
    first, noise = normalize(torch.randn(2, units, 64, generator=draw), dim=2)
    moved = first[torch.randperm(units, generator=draw)]
    now = {
        "the same": first,
        "moved": moved,
        "turned": normalize(0.8 * moved + 0.6 * noise),
        "strangers": noise,
        "twins": first[torch.randint(units, (units,), generator=draw)],
    }[kind]
    here = places(first, now)
    there = torch.vmap(places)(torch.stack([first, first]).cuda(), torch.stack([now, first]).cuda())
    as_they_are = torch.arange(units)
    assert there is not None
    assert torch.equal(there[0].cpu(), as_they_are if here is None else here)
    assert torch.equal(there[1].cpu(), as_they_are)


@pytest.mark.parametrize("cosine", [0.4, 0.0])
def test_many_weights_know_a_unit_again_far_from_where_it_began(cosine: float) -> None:
    """288 of them at 66°: chance gives others 0.2 at most.  What resembles nothing stays."""
    torch.manual_seed(5)
    network = nn.Sequential(nn.Linear(288, 32), nn.ReLU(), nn.Linear(32, 5))
    layout, draw = layout_of(network), torch.Generator().manual_seed(5)
    initial = layout.flatten(network)
    canonical = Canonical(find(network, layout, torch.zeros(2, 288)), initial)
    trained = initial.clone()
    rows = layout.views(trained)["0.weight"]
    noise = torch.randn(rows.shape, generator=draw)
    noise -= (noise * rows).sum(1, keepdim=True) / rows.square().sum(1, keepdim=True) * rows
    noise *= (rows.norm(dim=1) / noise.norm(dim=1))[:, None]
    rows.copy_(cosine * rows + math.sqrt(1 - cosine**2) * noise)
    lie = trained.clone()
    (units,) = canonical.symmetries.ordered
    units.permute(lie, torch.randperm(32, generator=draw))
    assert torch.allclose(canonical(lie), canonical(trained)) == (cosine > 0)


def test_the_form_hardly_lengthens_a_turn() -> None:
    """A rule that compares distances with the length of a turn would see less of a lie.

    (With a median for a size, the third layer's turns become seven times as long.)
    """
    stream = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    network = cifar_cnn((3, 32, 32), 10)
    layout, example = layout_of(network), torch.zeros(1, 3, 32, 32)
    initial = layout.gather([p.detach() for p in network.parameters()])
    canonical = Canonical(find(network, layout, example), initial)
    sizes = [p.numel() for p in network.parameters()]
    model, steps, turns = canonical(initial), torch.zeros(len(sizes)), torch.zeros(len(sizes))
    for _ in range(30):
        x = torch.randn(40, 3, 32, 32, generator=stream)
        y = torch.randint(10, (40,), generator=stream)
        leaf = model.clone().requires_grad_()
        loss = nn.functional.cross_entropy(functional_call(network, layout.views(leaf), (x,)), y)
        (gradient,) = torch.autograd.grad(loss, leaf)
        stepped = model - 0.03 * gradient
        formed = canonical(stepped)
        steps += torch.stack([part.square().sum() for part in (stepped - model).split(sizes)])
        turns += torch.stack([part.square().sum() for part in (formed - model).split(sizes)])
        model = formed
    assert (turns / steps).sqrt().max() < 1.3


@pytest.mark.parametrize("kind", ["mlp", "cifar-cnn", "batch norm", "residual"])
def test_but_on_a_cpu_no_value_is_looked_at(kind: str) -> None:
    """A CUDA graph holds the forms of what arrives.  A tensor on `meta` has no values."""
    case = Case(kind, 2)
    model, sizes, *others = (x.to("meta") for x in (case.model, *case.canonical.measures))
    assert case.canonical.form(model, sizes, *others).shape == model.shape
    assert case.canonical.settled(model, sizes).shape == model.shape
    assert case.canonical.limits(model, model, sizes).shape == model.shape
    models = torch.stack([model, model])  # of two rings
    measures = [torch.stack([x, x]) for x in (sizes, *others)]
    assert torch.vmap(case.canonical.form)(models, *measures).shape == models.shape


def test_honest_training_is_never_too_loud_and_makes_no_copies() -> None:
    """To the end: until the digits are learnt."""
    digits = data.load("digits", 0).train
    x, y = torch.from_numpy(digits.x).float(), torch.from_numpy(digits.y)
    x = (x - x.mean()) / x.std()
    torch.manual_seed(0)
    network = mlp(tuple(x.shape[1:]), 10, hidden=50)
    layout, draw = layout_of(network), torch.Generator().manual_seed(0)
    canonical = Canonical(find(network, layout, x[:2]), layout.flatten(network))
    sizes, loudest, *rest = canonical.measures
    all_of_them = torch.full_like(loudest, torch.inf)
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    for step in range(1200):
        batch = torch.randint(len(x), (64,), generator=draw)
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x[batch]), y[batch]).backward()
        optimizer.step()
        if step % 100 == 99:
            model = layout.flatten(network)
            assert torch.equal(canonical(model), canonical.form(model, sizes, all_of_them, *rest))
            for units in canonical._separable:
                assert not has_copies(units, model, canonical._initial)
    assert nn.functional.cross_entropy(network(x), y) < 0.05


def test_a_dead_unit_does_no_harm() -> None:
    case = Case("mlp", 6)
    dead = case.model.clone()
    case.layout.views(dead)["1.weight"][0] = 0.0
    assert case.canonical(dead).isfinite().all()


@pytest.mark.parametrize("name", ["mlp", "low rank", "attention"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_garbage_stays_garbage(name: str, value: float) -> None:
    case = Case(name, 6)
    for at in range(0, len(case.model), 7):
        broken = case.model.clone()
        broken[at] = value
        assert not case.canonical(broken).isfinite().all()


def test_what_breaks_a_symmetry_is_not_taken_for_one() -> None:
    """GELU lets no factor pass, an output is no hidden unit, a tied weight has two roles."""
    assert [u.name for u in Case("gelu", 0).symmetries.scaled] == ["3", "6"]  # the two LayerNorms
    assert [u.name for u in Case("mlp", 0).symmetries.scaled] == ["1", "3"]
    tied = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))
    tied[2].weight = tied[0].weight
    found = find(tied, layout_of(tied), torch.zeros(2, 6))
    assert not found.scaled
    softmax = nn.Sequential(nn.Flatten(), nn.Linear(6, 2))
    assert find(softmax, layout_of(softmax), torch.zeros(2, 6)).none


def test_what_cannot_be_traced_is_said() -> None:
    network = Branching()
    found = find(network, layout_of(network), torch.zeros(2, 20))
    assert found.none
    assert "cannot be traced" in found.unknown[0]
