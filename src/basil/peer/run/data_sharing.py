"""Data sharing between peers: Algorithm 2 with the samples themselves in the baskets.

A node that crashes on the way does not go on with it: it has forgotten which samples it offered,
and would contradict itself.  It stays silent for the rest of the sharing, which the others bear,
and joins the training with what it has.
"""

import hashlib
import secrets
from collections.abc import Generator
from dataclasses import asdict
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch

from basil import rng
from basil.attack.basket_faults import FAULTS, meddler
from basil.data.rows import from_rows, possible, to_rows
from basil.experiment import LocalNode
from basil.experiment.sharing_phase import timetable
from basil.peer.messages.bodies import RowForm
from basil.protocol.requests import Request
from basil.protocol.sharing.acds import Sharer, SharingOutcome, acds
from basil.protocol.sharing.basket import Basket
from basil.protocol.sharing.timetable import Timetable
from basil.recipe import Recipe
from basil.record import checkpoint

HOP = 0.25  # seconds for a hop besides the time on the link: to wake up, to look, to shuffle
BEGUN, RECEIVED = "sharing-begun", "sharing.safetensors"


class Sharing:
    """One node's part in the sharing, and what is left of it on the disk."""

    def __init__(self, recipe: Recipe, local: LocalNode, folder: Path) -> None:
        assert local.offered is not None
        assert local.public_samples is not None
        self.recipe, self.local = recipe, local
        self._begun, self._file = folder / BEGUN, folder / RECEIVED
        classes = local.data.classes
        self.samples = to_rows(local.offered, classes)
        self.dummies = to_rows(local.public_samples, classes)
        self.bits = 8 * self.samples.shape[1]
        megabits = recipe.time.megabits
        self.table: Timetable = timetable(
            recipe,
            local.node_data,
            lambda samples: HOP + ceil(samples * self.bits / 8) * 8 / (megabits * 1e6),
        )

    @property
    def rows(self) -> RowForm:
        """What a basket looks like on the wire; the largest comes from a whole group."""
        table = self.table
        largest = max(table.most_from_group(g) for g in range(len(table.groups)))
        in_ring = max(len(ring) for ring in table.groups) * table.size
        return RowForm("uint8", self.samples.shape[1:], self.bits, 2 * max(largest, in_ring))

    @cached_property
    def digest(self) -> str:
        """What all must have in common."""
        known = hashlib.sha256(np.ascontiguousarray(self.dummies).tobytes())
        known.update(f"{self.table.size} {self.samples.shape[1]}".encode())
        return known.hexdigest()

    def protocol(self, now: float, seeded: bool) -> Generator[Request, Any, SharingOutcome]:
        """`seeded`: with the simulator's shuffles; otherwise nobody can guess them."""
        node, local = self.local.node, self.local
        stream = rng.stream(self.recipe.seed, "node", node, "sharing")
        if not seeded:
            stream = np.random.Generator(np.random.PCG64(secrets.randbits(256)))
        known = {row.tobytes() for row in self.dummies}
        noise = self.recipe.sharing.dummies == "noise"
        sharer = Sharer(
            id=node,
            table=self.table,
            samples=Basket(self.samples, self.bits),
            dummies=lambda k: Basket(self.dummies[stream.choice(len(self.dummies), k)], self.bits),
            is_sample=lambda basket: possible(basket.rows, local.data),
            is_dummy=lambda basket: np.array(
                [noise and row.tobytes() in known for row in basket.rows], bool
            ),
            stream=stream,
            start=now,
        )
        lies = node in local.participants.byzantine
        fault = FAULTS[self.recipe.sharing.fault if lies else "none"]
        return meddler(acds(sharer), fault, self.recipe.sharing.fault_round)

    # -- across a restart --------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """Is there nothing left to do: it is finished, or was broken off?"""
        return self._file.exists() or self._begun.exists()

    def begin(self) -> None:
        self._begun.touch()

    def finish(self, outcome: SharingOutcome) -> None:
        """Keep what was received, and what the summary says of it."""
        rows = torch.from_numpy(np.ascontiguousarray(outcome.received.rows))
        facts = {
            "samples_in_a_batch": self.table.size,
            "offered": len(outcome.offered),
            "received": len(outcome.received),
            "incidents": [asdict(incident) for incident in outcome.incidents],
        }
        checkpoint.save(self._file, {"rows": rows, "facts": facts}, durable=True)

    def take_in(self) -> dict[str, Any]:
        """Train on what was received, if there is anything; what the summary says of it."""
        if not self._file.exists():
            return {"broken_off": True}
        saved = checkpoint.load(self._file)
        self.local.take_in(from_rows(saved["rows"].numpy(), self.local.data))
        facts: dict[str, Any] = saved["facts"]
        return facts
