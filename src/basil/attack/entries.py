"""All attacks by name, and the one that turns into another."""

from collections.abc import Mapping
from typing import Any

from basil.attack.adaptive import brink, creep, edge, stall
from basil.attack.adversary import lies_in
from basil.attack.check import at_least
from basil.attack.data import backdoor, label_flip, sybils
from basil.attack.distant import min_max, min_sum
from basil.attack.model import (
    copy,
    garbage,
    gaussian,
    hidden,
    inverse,
    layer_sign_flip,
    sign_flip,
    silent,
    stale,
)
from basil.attack.omniscient import alie, dissensus, ipm, mimic, rop
from basil.attack.searched import optimal_alie, optimal_dissensus, optimal_ipm, spectral
from basil.attack.selection import drift, overfit_shared, rank_seeking
from basil.attack.symmetry import ballast, permute, rescale, shift, twins
from basil.attack.view import Attack, Lie, Trial, View, declares
from basil.errors import UserError
from basil.table import Table


@declares(trains=True)
def betrayal(
    view: View, *, rounds: int = 10, then: str = "sign-flip", every: int = 1, **options: Any
) -> Lie | Trial:
    """Honest for some rounds, then any other attack (`then`), whose options stand beside it.

    It earns trust first and uses it later: aimed at rules that remember who was good.  The same
    as the other attack with attack.start = rounds + 1.  From then on it lies in every `every`-th
    round and is honest in between: who knows how much good a rule lets it trade for harm can keep
    its standing at the edge (rounds = p, every = p + 1: p good turns for each bad one).
    """
    _check_times(rounds, every)
    lies = lies_in(view.round, rounds + 1, every)
    return ATTACKS[then](view, **options) if lies else view.honest


ATTACKS: Table[Attack] = Table(
    "attack",
    {
        "gaussian": gaussian,
        "sign-flip": sign_flip,
        "layer-sign-flip": layer_sign_flip,
        "hidden": hidden,
        "inverse": inverse,
        "silent": silent,
        "stale": stale,
        "garbage": garbage,
        "copy": copy,
        "alie": alie,
        "ipm": ipm,
        "rop": rop,
        "mimic": mimic,
        "dissensus": dissensus,
        "min-max": min_max,
        "min-sum": min_sum,
        "optimal-alie": optimal_alie,
        "optimal-ipm": optimal_ipm,
        "optimal-dissensus": optimal_dissensus,
        "spectral": spectral,
        "label-flip": label_flip,
        "sybils": sybils,
        "backdoor": backdoor,
        "drift": drift,
        "rank-seeking": rank_seeking,
        "overfit-shared": overfit_shared,
        "betrayal": betrayal,
        "brink": brink,
        "edge": edge,
        "stall": stall,
        "creep": creep,
        "rescale": rescale,
        "permute": permute,
        "ballast": ballast,
        "twins": twins,
        "shift": shift,
    },
    # A function that declares nothing sees nothing but its own node's state, and trains nothing.
    adapt=lambda thing: thing if isinstance(thing, Attack) else declares()(thing),
)
THEN = "then"


def options_of(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """An attack's options with their defaults; a betrayal's include those of what it turns into."""
    own = ATTACKS.options(name)
    if THEN not in own:
        return own
    then = values.get(THEN)
    # What is no string is said when the value's own type is checked.
    return {**ATTACKS.options(_turns_into(then if isinstance(then, str) else own[THEN])), **own}


def armed(
    name: str, start: int | None, options: dict[str, Any]
) -> tuple[Attack, int, int, dict[str, Any]]:
    """The attack that is carried out, its first round, each how many-th it takes, its options."""
    attack = ATTACKS[name]
    if attack is not betrayal:
        return attack, attack.start if start is None else start, 1, options
    rounds, every = options["rounds"], options["every"]
    _check_times(rounds, every)
    turned = _turns_into(options[THEN])
    known = ATTACKS.options(turned)
    given = {key: value for key, value in options.items() if key in known}
    return ATTACKS[turned], max(start or 1, rounds + 1), every, given


def _check_times(rounds: int, every: int) -> None:
    at_least("rounds", rounds, 0)
    at_least("every", every, 1)


def _turns_into(name: str) -> str:
    if ATTACKS[name] is betrayal:
        raise UserError(f"attack.{THEN} = {name!r}: it must be another attack")
    return name
