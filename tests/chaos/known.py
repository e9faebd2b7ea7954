"""What is the same in every night, and made once: who takes part, the recipe, samples, networks."""

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cryptography import x509
from torch import Tensor, nn

from basil import data
from basil.experiment import LocalNode, Setup, set_up
from basil.experiment.node_data import NodeData
from basil.learning import compute
from basil.learning.layout import Layout
from basil.learning.symmetry.find import find
from basil.peer.members import roster
from basil.peer.members.identity import Identity, load_identity
from basil.peer.members.roster import Roster
from basil.peer.run import peer, recording, start
from basil.recipe import Recipe, parse, to_toml


@contextmanager
def known() -> Iterator[None]:
    """Peers that are started find it, by its content."""
    with (
        patch.object(data, "load", _load),
        patch.object(compute, "find", _find),
        patch.object(roster, "parse", _roster),
        patch.object(peer, "load_identity", _identity),
        patch.object(peer, "parse", _recipe),
        patch.object(peer, "local_node_of", _local_node),
        patch.object(peer, "set_up", _set_up),
        patch.object(peer, "to_toml", _toml),
        patch.object(recording, "to_toml", _toml),
        patch.object(tomllib, "loads", _read_toml),
        patch.object(NodeData, "draw", _draw),
    ):
        yield


_load = cache(data.load)
_draw = lru_cache(4096)(NodeData.draw)  # a node's batches are the same in every night
_read_toml = lru_cache(64)(tomllib.loads)  # nobody changes what was read
_parse_roster = roster.parse
_found: dict[str, Any] = {}
_rosters: dict[bytes, Roster] = {}
_identities: dict[str, Identity] = {}
_recipes: dict[str, Recipe] = {}
_texts: dict[int, tuple[Recipe, str]] = {}
_nodes: dict[tuple[int, int, str], LocalNode] = {}
_setups: dict[int, Setup] = {}


def _find(network: nn.Module, layout: Layout, sample: Tensor) -> Any:
    if layout.fingerprint not in _found:
        _found[layout.fingerprint] = find(network, layout, sample)
    return _found[layout.fingerprint]


def _roster(sealed: bytes, authority: x509.Certificate, source: str) -> Roster:
    if sealed not in _rosters:
        _rosters[sealed] = _parse_roster(sealed, authority, source)
    return _rosters[sealed]


def _identity(folder: Path) -> Identity:
    """No night touches keys and certificates."""
    if folder.name not in _identities:
        _identities[folder.name] = load_identity(folder)
    return replace(_identities[folder.name], folder=folder)


def _recipe(tree: dict[str, Any], source: str) -> Recipe:
    key = repr(tree)
    if key not in _recipes:
        _recipes[key] = parse(tree, source)
    return _recipes[key]


def _toml(recipe: Recipe) -> str:
    if id(recipe) not in _texts:
        _texts[id(recipe)] = recipe, to_toml(recipe)  # it stays, so that no other has its number
    return _texts[id(recipe)][1]


def _local_node(recipe: Recipe, node: int, options: start.Options) -> LocalNode:
    key = id(recipe), node, options.attack  # recipes stay, above
    if key not in _nodes:
        _nodes[key] = start.local_node_of(recipe, node, options)
    return _nodes[key]


def _set_up(recipe: Recipe, custom: Any, machine: Any, held: NodeData) -> Setup:
    if id(held) not in _setups:
        _setups[id(held)] = set_up(recipe, custom, machine, held=held)
    return replace(_setups[id(held)], colluders={})
