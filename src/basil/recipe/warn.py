"""What is allowed but likely to disappoint."""

from basil.protocol.schemes import RINGS, runs_on
from basil.recipe.schema import NO_ATTACK, Recipe
from basil.theory import (
    failure_exact,
    group_failure_exact,
    smallest_connectivity,
    smallest_group_connectivity,
)


def warnings(recipe: Recipe) -> list[str]:
    """What is allowed but likely to disappoint."""
    found = []
    N, b, S = recipe.ring.nodes, recipe.ring.byzantine, recipe.connectivity
    if recipe.attack.name != NO_ATTACK and b == 0:
        found.append(
            f"attack {recipe.attack.name!r} has nobody to carry it out: ring.byzantine = 0"
        )
    if recipe.sharing.fault != "none" and (recipe.attack.name == NO_ATTACK or b == 0):
        found.append(
            f"sharing.fault = {recipe.sharing.fault!r} has nobody to carry it out: it takes an"
            " attack and ring.byzantine > 0"
        )
    if runs_on(recipe.scheme.name) == RINGS and recipe.groups == 1:
        found.append(
            f"ring.groups = 1: with one ring, {recipe.scheme.name} is the scheme without +"
        )
    if recipe.attack.name == NO_ATTACK or b == 0:
        return found
    if recipe.scheme.name == "basil+" and recipe.groups > 1:
        return found + _group_warnings(recipe)
    if recipe.scheme.name not in ("basil", "basil+"):
        return found
    if b == N - 1:
        return [f"ring.byzantine = {b}: the one benign node of {N} hears from Byzantine nodes only"]
    if recipe.ring.placement == "row" and b >= S:
        found.append(
            f"ring.connectivity = {S}: with all {b} Byzantine nodes in a row some node will hear"
            f" from Byzantine nodes only; S = {b + 1} prevents that"
        )
    elif recipe.ring.placement == "rows":  # where nothing is left to chance
        row = min(recipe.row, b)
        if row >= S:
            found.append(
                f"ring.row = {recipe.row}: with {row} Byzantine nodes in a row some node will hear"
                f" from Byzantine nodes only; S = {row + 1} prevents that"
            )
    elif (failure := failure_exact(N, b, S)) > 0.01:
        enough = smallest_connectivity(N, b, 0.01)
        found.append(
            f"ring.connectivity = {S}: with probability {failure:.2g} some benign node hears from"
            f" Byzantine nodes only (Prop. 2, exact); S = {enough} brings that under 1 %"
        )
    return found


def _group_warnings(recipe: Recipe) -> list[str]:
    N, b, G, S = recipe.ring.nodes, recipe.ring.byzantine, recipe.groups, recipe.connectivity
    if N % G or recipe.ring.placement != "random":  # the formulas are for equal, random groups
        return []
    failure = group_failure_exact(N, b, G, S)
    if failure <= 0.01:
        return []
    enough = smallest_group_connectivity(N, b, G, 0.01)
    advice = f"S = {enough} brings that under 1 %" if enough else "fewer groups would help"
    return [
        f"ring.connectivity = {S}: with probability {failure:.2g} some group of {N // G} has {S}"
        f" Byzantine nodes in a row (Prop. 5, exact); {advice}"
    ]
