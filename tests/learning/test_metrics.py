"""Each metric against scikit-learn's, and what a model's outputs may do to them."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics as theirs
from torch import Tensor, nn

from basil.data import Samples
from basil.errors import UserError
from basil.learning.compute import CPU_CHUNK, Compute
from basil.learning.cuda import GraphCompute
from basil.learning.metrics import METRICS, Metric, Tally, metric_of, metrics_named
from basil.learning.models import cross_entropy, half_squared_error
from basil.learning.pool import Pool


def drawn(n: int, classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Outputs that are right more often than not, in few steps: there are ties."""
    torch.manual_seed(seed)
    targets = torch.randint(classes, (n,))
    outputs = torch.randint(-3, 4, (n, classes)).float()
    outputs[torch.arange(n), targets] += 2
    return outputs, targets


def odds(outputs: Tensor, label: int) -> Tensor:
    """Of a class against the rest: ties of these are ties, those of probabilities may be broken."""
    rest = [k for k in range(outputs.shape[1]) if k != label]
    return outputs[:, label].double() - outputs[:, rest].double().logsumexp(1)


def value(name: str, outputs: Tensor, targets: Tensor) -> float:
    [metric] = metrics_named([name], {})
    return metric(outputs, targets)


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("n", [5, 300])
def test_what_scikit_learn_finds(n: int, classes: int) -> None:
    """Of few samples some classes are never said, or never true."""
    outputs, targets = drawn(n, classes)
    said, shares = outputs.argmax(1), outputs.double().softmax(1)
    labels = range(classes)
    assert value("error", outputs, targets) == pytest.approx(
        1 - theirs.accuracy_score(targets, said)
    )
    assert value("macro-f1", outputs, targets) == pytest.approx(
        theirs.f1_score(targets, said, average="macro")
    )
    assert value("perplexity", outputs, targets) == pytest.approx(
        math.exp(theirs.log_loss(targets, shares, labels=labels)), rel=1e-5
    )


@pytest.mark.parametrize("classes", [3, 10])
def test_the_area_of_several_classes(classes: int) -> None:
    outputs, targets = drawn(300, classes)
    each = [theirs.roc_auc_score(targets == c, odds(outputs, c)) for c in range(classes)]
    assert value("auc", outputs, targets) == pytest.approx(np.mean(each))
    smooth = outputs + torch.rand(outputs.shape)  # no ties
    expected = theirs.roc_auc_score(targets, smooth.double().softmax(1), multi_class="ovr")
    assert value("auc", smooth, targets) == pytest.approx(expected)


def test_the_area_of_two_classes_with_ties() -> None:
    outputs, targets = drawn(200, 2)
    expected = theirs.roc_auc_score(targets, outputs[:, 1] - outputs[:, 0])
    assert value("auc", outputs, targets) == pytest.approx(expected)
    for one in (outputs[:, 1], outputs[:, 1:]):  # a single score
        assert value("auc", one, targets) == pytest.approx(
            theirs.roc_auc_score(targets, outputs[:, 1])
        )
    assert value("auc", torch.zeros(4, 2), torch.tensor([0, 1, 0, 1])) == 0.5
    # Probabilities would be 1.0 both: the order is still seen.
    sure = torch.tensor([[0.0, 60.0], [0.0, 90.0]])
    assert value("auc", sure, torch.tensor([0, 1])) == 1.0


def test_classes_that_no_sample_has_do_not_count() -> None:
    outputs, targets = drawn(300, 3)
    targets = targets.clamp(max=1)  # class 2 is gone
    each = [theirs.roc_auc_score(targets == c, odds(outputs, c)) for c in (0, 1)]
    assert value("auc", outputs, targets) == pytest.approx(np.mean(each))
    assert math.isnan(value("auc", outputs, torch.zeros_like(targets)))


def test_sequences_without_what_is_ignored() -> None:
    outputs, targets = drawn(60, 7)
    known = torch.rand(60) < 0.7
    some = torch.where(known, targets, -100)
    for name in ("perplexity", "error", "macro-f1", "auc"):
        found = value(name, outputs.view(12, 5, 7), some.view(12, 5))
        assert found == pytest.approx(value(name, outputs[known], targets[known])), name
    loss = nn.functional.cross_entropy(outputs, some, ignore_index=-100)
    assert value("perplexity", outputs.view(12, 5, 7), some.view(12, 5)) == pytest.approx(
        math.exp(loss)
    )


def test_regression() -> None:
    torch.manual_seed(0)
    outputs, targets = torch.randn(50), torch.randn(50)
    expected = theirs.mean_absolute_error(targets, outputs)
    assert value("mae", outputs, targets) == pytest.approx(expected)


def test_which_way_is_better() -> None:
    found = {metric.name: metric.better for metric in metrics_named(METRICS, {})}
    assert found.pop("macro-f1") == found.pop("auc") == "higher"
    assert set(found.values()) == {"lower"}


@pytest.mark.parametrize(
    ("name", "outputs", "sentence"),
    [
        ("mae", torch.zeros(6, 3), "metric 'mae': it cannot be computed from outputs of shape"),
        ("mae", torch.zeros(6, 1), r"one for each of 6 samples, not shape \(6, 6\)"),
        ("error", torch.zeros(6), "it is for classification"),
    ],
)
def test_what_does_not_suit_the_data_is_one_sentence(
    name: str, outputs: Tensor, sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        value(name, outputs, torch.zeros(6, dtype=torch.int64))


def test_what_others_functions_may_return() -> None:
    outputs, targets = drawn(4, 3)

    def made(result: Any) -> float:
        def mine(outputs: Tensor, targets: Tensor) -> Any:
            return result

        return metric_of(mine)(outputs, targets)

    assert made(2) == made(np.float32(2)) == made(torch.tensor(2)) == made([1, 2, 2, 3]) == 2.0
    for wrong in (torch.zeros(3), torch.zeros(4, 1), None, "many"):
        with pytest.raises(UserError, match="metric 'mine': it"):
            made(wrong)


def test_a_model_that_has_gone_astray_has_no_value_and_ends_nothing() -> None:
    """Scikit-learn refuses what is not finite."""

    def log_loss(outputs: Tensor, targets: Tensor) -> float:
        return float(theirs.log_loss(targets, outputs.numpy(), labels=range(3)))

    metric = metric_of(log_loss)
    for bad in (math.nan, math.inf):
        outputs, targets = drawn(4, 3)
        outputs[2, 1] = bad
        assert math.isnan(metric(outputs, targets))
    with pytest.raises(UserError, match="'log_loss': it cannot be computed"):
        metric(torch.ones(4, 5), targets)


def test_what_is_not_a_number_has_no_rank() -> None:
    outputs, targets = drawn(20, 3)
    outputs[3, 1] = math.nan
    assert math.isnan(value("auc", outputs, targets))
    assert math.isnan(value("auc", outputs[:, 1], targets.clamp(max=1)))


def test_only_two_words_say_what_is_better() -> None:
    with pytest.raises(UserError, match="better = 'max': it must be higher or lower"):
        Metric("mine", len, "max")


def test_measured_on_all_samples_beside_loss_and_accuracy() -> None:
    """On both paths, in more than one piece; what else is measured stays as it was."""
    torch.manual_seed(0)
    stream = np.random.default_rng(0)
    n = 2 * CPU_CHUNK + 30
    x = stream.standard_normal((n + 5, 8), dtype=np.float32)
    pool = Pool(Samples(x, stream.integers(0, 4, n + 5)), (0.0,), (1.0,))
    asked = metrics_named(["macro-f1", "auc"], {})
    for kind in (Compute, GraphCompute):
        compute = kind(nn.Linear(8, 4), cross_entropy, pool)
        models = [compute.initial, 2 * compute.initial + 0.1]
        plain, found = (compute.test(models, pool, n, *more).wait() for more in ((), (asked,)))
        for model, before, after in zip(models, plain, found, strict=True):
            assert after[:2] == (pytest.approx(before) if kind is GraphCompute else before)
            weight, bias = model[:32].view(4, 8), model[32:]
            outputs = nn.functional.linear(torch.from_numpy(x[:n]), weight, bias)
            by_hand = tuple(metric(outputs, pool.y[:n]) for metric in asked)
            assert after[2:] == pytest.approx(by_hand, rel=1e-4)


def test_measured_where_there_is_no_accuracy() -> None:
    class Line(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).squeeze(1)

    x = np.random.default_rng(0).standard_normal((30, 3), dtype=np.float32)
    pool = Pool(Samples(x, x.sum(1)), (0.0,), (1.0,))
    compute = Compute(Line(3, 1), half_squared_error, pool)
    [(_, accuracy, mae)] = compute.test(
        [torch.tensor([1.0, 1.0, 1.0, 0.5])], pool, 30, metrics_named(["mae"], {})
    ).wait()
    assert math.isnan(accuracy)
    assert mae == pytest.approx(0.5)


@pytest.mark.parametrize("name", ["perplexity", "error", "macro-f1"])
def test_some_samples_at_a_time_come_to_the_same(name: str) -> None:
    """Sequences of unlike lengths: a mean of the means of parts would be another number."""
    [metric] = metrics_named([name], {})
    draw = torch.Generator().manual_seed(0)
    outputs = torch.randn(30, 5, 7, generator=draw)
    targets = torch.randint(7, (30, 5), generator=draw)
    targets[:10, 1:] = -100
    tally = Tally(metric)
    for start in range(0, 30, 10):
        tally.add(outputs[start : start + 10], targets[start : start + 10])
    assert tally.value() == pytest.approx(metric(outputs, targets), rel=1e-12)
    assert tally.value() != pytest.approx(metric(outputs[:10], targets[:10]), rel=1e-3)
