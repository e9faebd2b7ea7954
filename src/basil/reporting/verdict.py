"""Does what was measured agree with what the paper says?  Expectations of a figure, checked."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from basil.recipe.figure import Expectation, Figure
from basil.record.read import Run
from basil.reporting.results_table import mean_and_spread

AGREES, DIFFERS, UNFINISHED = "agrees", "differs", "not finished"
SHARES = ("accuracy", "attack_success")  # of samples, in per cent
COST = {"rounds": "round", "seconds": "virtual_seconds", "megabytes": "bytes"}


def unit_of(quantity: str) -> float:
    """Shares are said in per cent."""
    return 100.0 if quantity in SHARES else 1.0


@dataclass(frozen=True)
class Traced:
    """One curve in one panel, as it was run: a run for each seed, as far as they are there."""

    panel: str
    curve: str
    label: str
    runs: tuple[Run, ...]
    rounds: int  # of the recipe
    seeds: int  # that were asked for

    @property
    def finished(self) -> bool:
        return len(self.runs) == self.seeds and all(run.finished for run in self.runs)


@dataclass(frozen=True)
class Verdict:
    panel: str
    expected: str
    measured: str
    outcome: str
    note: str = ""

    def __str__(self) -> str:
        place = f"({self.panel}) " if self.panel else ""
        return f"{place}expected: {self.expected}; measured {self.measured}: {self.outcome}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def verdicts(figure: Figure, traced: Mapping[tuple[str, str], Traced]) -> list[Verdict]:
    """One for each panel of each expectation, panel by panel."""
    asked = [(panel, e) for panel in figure.panels for e in figure.expect if panel in e.panels]
    return [_verdict(figure, expected, panel, traced) for panel, expected in asked]


def _verdict(
    figure: Figure, expected: Expectation, panel: str, traced: Mapping[tuple[str, str], Traced]
) -> Verdict:
    own = traced[panel, expected.curve]
    other = traced.get((panel, expected.than)) if expected.than else None
    sentence = _sentence(expected, own, other, figure)
    finished = own.finished and (other is None or other.finished)
    if expected.of == "reach":
        assert other is not None
        value, words = _reach(own, other, figure.metric_of(panel), figure.against)
    elif expected.of == "swing":
        assert other is not None
        value, words = _swing(own, other, figure.metric_of(panel))
    else:
        share = expected.of == "share"
        value, words = _compared(own, other, figure.quantity, figure.metric_of(panel), share)
    if value is None:
        # A figure that is complete and has no value never got there.
        outcome = DIFFERS if finished and expected.of == "reach" else UNFINISHED
    else:
        low, high = expected.at_least, expected.at_most
        fits = (low is None or value >= low) and (high is None or value <= high)
        outcome = AGREES if fits else DIFFERS
        if not finished:
            outcome = f"{UNFINISHED}; so far it {outcome}"
    return Verdict(panel, sentence, words, outcome, expected.note)


def _sentence(expected: Expectation, own: Traced, other: Traced | None, figure: Figure) -> str:
    low, high, against = expected.at_least, expected.at_most, figure.against
    unit, points = (" %", " points") if unit_of(figure.quantity) > 1 else ("", "")
    if expected.of == "reach":
        assert other is not None
        bounds = _bounds(low, high, lambda x: f"{x:g}")
        return (
            f"{against} until {own.label} is as good as {other.label} ever gets, over those that"
            f" {other.label} takes: {bounds}"
        )
    if expected.of == "swing":
        assert other is not None
        bounds = _bounds(low, high, lambda x: f"{x:g}")
        return f"{own.label} goes up and down {bounds} times as much as {other.label}"
    if other is None:
        return f"{own.label} {_bounds(low, high, lambda x: f'{x:g}{unit}')}"
    if expected.of == "share":
        return f"{own.label} {_bounds(low, high, lambda x: f'{x:g} of {other.label}')}"

    def above(x: float) -> str:
        return f"{other.label} {'+' if x > 0 else '−'} {abs(x):g}{points}" if x else other.label

    return f"{own.label} {_bounds(low, high, above)}"


def _bounds(low: float | None, high: float | None, words: Any) -> str:
    said = [] if low is None else [f"≥ {words(low)}"]
    said += [] if high is None else [f"≤ {words(high)}"]
    return " and ".join(said)


def _compared(
    own: Traced, other: Traced | None, quantity: str, metric: str, share: bool
) -> tuple[float | None, str]:
    """Per cent; points above the other, or the share of the other's; and in words."""
    until = _reached([own, other] if other else [own])
    mine = _measured(own, quantity, metric, until)
    theirs = _measured(other, quantity, metric, until) if other else None
    if mine is None or (other and theirs is None) or until == 0:
        return None, "nothing yet"
    mean, words = mine
    words = words if until is None else f"in round {until} {words}"
    if theirs is None:
        return mean, words
    if share:
        value = mean / theirs[0]
        return value, f"{words} against {theirs[1]} ({value:.2f})"
    return mean - theirs[0], f"{words} against {theirs[1]} ({mean - theirs[0]:+.1f})"


def _reached(traced: list[Traced]) -> int | None:
    """The last round that all runs have got to: there they can be compared.  None: at their end."""
    if all(each.finished for each in traced) or len({each.rounds for each in traced}) > 1:
        return None
    return min((_last(run) for each in traced for run in each.runs), default=0)


def _last(run: Run) -> int:
    return int(run.metrics[-1]["round"]) if run.metrics else 0


def _measured(
    traced: Traced, quantity: str, metric: str, until: int | None
) -> tuple[float, str] | None:
    """As last measured, up to a round if one is given: mean over seeds, with their spread."""
    last = []
    for run in traced.runs:
        entries = [e for e in run.metrics if until is None or e["round"] <= until]
        last += [entry.get(quantity) or {} for entry in entries[-1:]]
    unit = unit_of(quantity)
    found = [unit * float(each[metric]) for each in last if each.get(metric) is not None]
    return _written(found, 1) if found else None


def _reach(own: Traced, other: Traced, metric: str, against: str) -> tuple[float | None, str]:
    """Seed by seed; None where it never gets there."""
    ratios = []
    for mine, theirs in zip(own.runs, other.runs, strict=False):
        goal = _course(theirs, metric, against)
        if not goal:
            return None, "nothing yet"
        best = max(accuracy for _, accuracy in goal)
        when = next(cost for cost, accuracy in goal if accuracy == best)
        there = [cost for cost, accuracy in _course(mine, metric, against) if accuracy >= best]
        if not there:
            return None, f"never: {own.label} does not get to {100 * best:.1f} %"
        if not when:
            return None, f"nothing: {other.label} is best before it has learnt"
        ratios.append(there[0] / when)
    if not ratios:
        return None, "nothing yet"
    return _written(ratios, 2)


def _swing(own: Traced, other: Traced, metric: str) -> tuple[float | None, str]:
    """From one measurement to the next, on average over the second half of the rounds there are."""
    until = _reached([own, other])
    mine, theirs = ([_unrest(run, metric, until) for run in t.runs] for t in (own, other))
    if not mine or not theirs or None in (*mine, *theirs):
        return None, "nothing yet"
    (a, ours), (b, others) = (
        _written([points for points in each if points is not None], 2) for each in (mine, theirs)
    )
    where = "" if until is None else f"until round {until} "
    if b == 0:
        return None, f"{where}{ours} points against none"
    return a / b, f"{where}{ours} points against {others} ({a / b:.2f})"


def _unrest(run: Run, metric: str, until: int | None) -> float | None:
    """Points by which the accuracy changes between two measurements; None if there are too few."""
    course = _course(run, metric, "rounds")
    last = until if until is not None else max((k for k, _ in course), default=0)
    found = [100 * accuracy for k, accuracy in course if last / 2 <= k <= last]
    changes = [abs(b - a) for a, b in pairwise(found)]
    return sum(changes) / len(changes) if changes else None


def _written(found: list[float], digits: int) -> tuple[float, str]:
    """The mean over seeds, and in words with their spread."""
    mean, spread = mean_and_spread(found)
    return mean, f"{mean:.{digits}f}" + (f" ± {spread:.{digits}f}" if spread is not None else "")


def _course(run: Run, metric: str, against: str) -> list[tuple[float, float]]:
    """(cost so far, accuracy), for each measurement."""
    key = COST[against]
    return [
        (float(entry[key]), float(accuracy[metric]))
        for entry in run.metrics
        if key in entry
        and (accuracy := entry.get("accuracy") or {})
        and accuracy[metric] is not None
    ]
