"""The nodes of an experiment: what each of them knows, and the protocol that it follows."""

from functools import partial
from typing import Any

import numpy as np

from basil import rng
from basil.attack import ArmedAttack, Knowledge, View, adversary
from basil.experiment.assembly import Assembly
from basil.experiment.cast import Cast
from basil.experiment.machine import Machine, Own
from basil.experiment.options import options_of
from basil.learning.pool import Batch
from basil.protocol.node import GraphPlace, GroupPlace, Node, RingPlace
from basil.protocol.requests import Protocol
from basil.protocol.schemes import SCHEMES
from basil.recipe import Recipe


class Nodes(Assembly):
    """Every node with its place, its data and its role."""

    def __init__(
        self,
        recipe: Recipe,
        own: Own | None = None,
        machine: Machine | None = None,
        beside: Assembly | None = None,
        cast: Cast | None = None,
    ) -> None:
        super().__init__(recipe, own, machine, beside, cast)
        self._rehearse()

    def start(
        self, node: int, now: float, state: dict[str, Any] | None, rejoin_round: int | None
    ) -> Protocol:
        """The protocol of one node, honest or not."""
        place, cast = self._place(node, now, state, rejoin_round), self.cast
        if node not in cast.byzantine:
            return self._scheme(place)
        assert cast.attack is not None
        armed = ArmedAttack(
            cast.attack,
            cast.attack_options,
            cast.attack_start,
            cast.attack_every,
            self.recipe.attack.stages,
        )
        samples = {} if self.shared is None else self.shared.known_to(node, cast)
        known = Knowledge(
            self.compute.layout,
            self.recipe.seed,
            self.colluders,
            cast.byzantine,
            cast.weights,
            calendar=self.calendar,
            symmetries=self.compute.symmetries,
            **samples,
        )
        return adversary(place, self._scheme, armed, known)

    def _scheme(self, place: Node) -> Protocol:
        scheme = self.recipe.scheme
        return SCHEMES[scheme.name](place, **options_of(scheme, SCHEMES, "name"))

    def _place(
        self,
        node: int,
        now: float = 0.0,
        state: dict[str, Any] | None = None,
        rejoin_round: int | None = None,
    ) -> Node:
        """What this node knows."""
        recipe, seed, graph = self.recipe, self.recipe.seed, self.cast.graph
        return Node(
            id=node,
            rounds=recipe.scheme.rounds,
            initial_model=self.compute.initial,
            draw=partial(self._draw, node),
            rate=self._rate,
            key=lambda k: rng.key(seed, "node", node, "round", k, "training"),
            patience=self.patience,
            on_ring=RingPlace(
                ring=self.cast.ring,
                connectivity=recipe.connectivity,
                reach=recipe.reach,
                rule=self.rule,
                layers=tuple(self.compute.layout.layers),
                score_on_arrival=recipe.scheme.scoring == "arrival",
            ),
            on_rings=GroupPlace(
                self.cast.grouping, recipe.laps, self.hop_patience, by_outcome=recipe.canonical
            ),
            on_graph=GraphPlace(
                neighbours=graph.neighbours[node] if graph else (),
                weights=self.cast.weights(node) if graph else {},
                byzantine=recipe.ring.byzantine,
            ),
            start=now,
            state=state,
            rejoin_round=rejoin_round,
        )

    def _rehearse(self) -> None:
        """A wrong option of a scheme or an attack is said before the run, not in the middle."""
        cast, x0 = self.cast, self.compute.initial
        for node in cast.members:
            self._scheme(self._place(node))
        if cast.attack is not None and cast.byzantine:
            first = min(cast.byzantine)
            view = View(
                node=first,
                round=1,
                selected=x0,
                honest=x0,
                layout=self.compute.layout,
                symmetries=self.compute.symmetries,
                spare=lambda: Batch(np.zeros(1, np.int64)),
                lap=len(cast.ring_of(first)),
                receivers=cast.receivers(first),
                colluders=cast.byzantine,
                weights=cast.weights,
                seed=self.recipe.seed,
                state={},
                shared={},
                benign=dict.fromkeys(cast.benign, x0),
            )
            next(cast.attack.lie(view, **cast.attack_options), None)  # up to its first question
