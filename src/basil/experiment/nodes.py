"""What each node of an experiment knows, and the protocol that it follows."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from basil import rng
from basil.attack import Knowledge, View, adversary
from basil.attack.rehearsal import Rehearsal
from basil.experiment.options import options_of
from basil.experiment.setup import Setup
from basil.learning.pool import Batch
from basil.protocol.graph.mixing import MIXINGS
from basil.protocol.looks_at import looks_at
from basil.protocol.node import NO_GRAPH, GraphPlace, GroupPlace, Node, RingPlace
from basil.protocol.requests import Protocol
from basil.protocol.schemes import SCHEMES


def protocol_of(
    setup: Setup, node: int, now: float, state: dict[str, Any] | None, rejoin_round: int | None
) -> Protocol:
    """The protocol of one node, honest or not."""
    place, participants = node_of(setup, node, now, state, rejoin_round), setup.participants
    if node not in participants.byzantine:
        return _scheme(setup)(place)
    assert participants.attack is not None
    shared = setup.shared
    samples = {} if shared is None else shared.known_to(node, setup.node_data.local[node])

    known = Knowledge(
        setup.compute.layout,
        setup.recipe.seed,
        setup.colluders,
        participants.byzantine,
        participants.weights,
        numbering=setup.numbering,
        symmetries=setup.compute.symmetries,
        rehearsal=_rehearsal(setup) if participants.graph else None,
        **samples,
    )
    return adversary(place, _scheme(setup), participants.attack, known)


def _rehearsal(setup: Setup) -> Rehearsal:
    recipe = setup.recipe
    seen = looks_at(SCHEMES[recipe.scheme.name], MIXINGS[recipe.graph.mixing])
    return Rehearsal(cache(partial(node_of, setup)), _scheme(setup), seen, recipe.seed)


def _scheme(setup: Setup) -> Callable[[Node], Protocol]:
    scheme = setup.recipe.scheme
    return partial(SCHEMES[scheme.name], **options_of(scheme, SCHEMES, "name"))


def node_of(
    setup: Setup,
    node: int,
    now: float = 0.0,
    state: dict[str, Any] | None = None,
    rejoin_round: int | None = None,
) -> Node:
    """What this node knows."""
    recipe, seed, participants = setup.recipe, setup.recipe.seed, setup.participants
    graph, mixing = participants.graph, options_of(recipe.graph, MIXINGS, "mixing")
    return Node(
        id=node,
        rounds=recipe.scheme.rounds,
        initial_model=setup.compute.initial,
        draw=partial(setup.node_data.draw, node),
        judge=partial(setup.node_data.judge, node),
        averages=recipe.averages_in,
        rate=setup.rate,
        key=lambda k: rng.key(seed, "node", node, "round", k, "training"),
        patience=setup.patience,
        on_ring=RingPlace(
            ring=participants.ring,
            connectivity=recipe.connectivity,
            reach=recipe.reach,
            rule=setup.rule,
            score_on_arrival=recipe.scheme.scoring == "arrival",
            descent=recipe.scheme.descent,
            extrapolate=recipe.scheme.extrapolate,
        ),
        on_rings=GroupPlace(
            participants.grouping, recipe.laps, setup.hop_patience, by_outcome=recipe.canonical
        ),
        on_graph=GraphPlace(
            neighbours=graph.neighbours[node] if graph else (),
            graph=graph or NO_GRAPH,
            weights=participants.weights(node) if graph else {},
            byzantine=recipe.ring.byzantine,
            mixing=partial(MIXINGS[recipe.graph.mixing], **mixing),
        ),
        seed=seed,
        start=now,
        state=state,
        rejoin_round=rejoin_round,
    )


def check_options(setup: Setup) -> None:
    """A wrong option of a scheme, schedule or attack is said before the run, not in the middle."""
    participants, x0 = setup.participants, setup.compute.initial
    for k in (1, setup.recipe.scheme.rounds):
        setup.rate(k)
    for node in participants.members:
        _scheme(setup)(node_of(setup, node))
    armed = participants.attack
    if armed is not None and participants.byzantine:
        first = min(participants.byzantine)
        view = View(
            node=first,
            round=1,
            selected=x0,
            honest=x0,
            layout=setup.compute.layout,
            symmetries=setup.compute.symmetries,
            spare=lambda: Batch(np.zeros(1, np.int64)),
            lap=len(participants.ring_of(first)),
            receivers=participants.receivers(first),
            colluders=participants.byzantine,
            weights=participants.weights,
            seed=setup.recipe.seed,
            state={},
            shared={},
            benign=dict.fromkeys(participants.benign, x0),
        )
        next(armed.attack.lie(view, **armed.options), None)  # up to its first question
