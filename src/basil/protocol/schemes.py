"""The schemes that a recipe can name, by what connects the nodes."""

from collections.abc import Callable

from basil.protocol.alone import centralised, local
from basil.protocol.basil import basil, basil_published, r_plain
from basil.protocol.basil_plus import basil_plus, r_plain_plus
from basil.protocol.graph.balance import balance
from basil.protocol.graph.bridge import bridge, bridge_median
from basil.protocol.graph.clipped_gossip import clipped_gossip
from basil.protocol.graph.g_plain import g_plain
from basil.protocol.graph.ios import ios
from basil.protocol.graph.nna import nna
from basil.protocol.graph.robust_gossip import cs_plus, gts
from basil.protocol.graph.rpel import rpel
from basil.protocol.graph.sketchguard import sketchguard
from basil.protocol.graph.ubar import ubar
from basil.protocol.requests import Protocol
from basil.table import Table

Schemes = dict[str, Callable[..., Protocol]]

RING_SCHEMES: Schemes = {
    "basil": basil,
    "basil-published": basil_published,
    "r-plain": r_plain,
}
GROUP_SCHEMES: Schemes = {"basil+": basil_plus, "r-plain+": r_plain_plus}  # several rings
GRAPH_SCHEMES: Schemes = {
    "g-plain": g_plain,
    "ubar": ubar,
    "bridge": bridge,
    "bridge-median": bridge_median,
    "clipped-gossip": clipped_gossip,
    "cs+": cs_plus,
    "gts": gts,
    "nna": nna,
    "ios": ios,
    "balance": balance,
    "rpel": rpel,
    "sketchguard": sketchguard,
}
LOCAL_SCHEMES: Schemes = {"local": local}  # nobody is connected
POOLED_SCHEMES: Schemes = {"centralised": centralised}  # one node holds all benign data

SCHEMES: Table[Callable[..., Protocol]] = Table(
    "scheme",
    {**RING_SCHEMES, **GROUP_SCHEMES, **GRAPH_SCHEMES, **LOCAL_SCHEMES, **POOLED_SCHEMES},
    takes=("node",),
)
RING, RINGS, GRAPH, NOTHING, POOL = "ring", "rings", "graph", "nothing", "pool"
_SHIPPED = {
    **dict.fromkeys(RING_SCHEMES, RING),
    **dict.fromkeys(GROUP_SCHEMES, RINGS),
    **dict.fromkeys(GRAPH_SCHEMES, GRAPH),
    **dict.fromkeys(LOCAL_SCHEMES, NOTHING),
    **dict.fromkeys(POOLED_SCHEMES, POOL),
}


def runs_on(name: str) -> str:
    """What connects the nodes of a scheme; one that Basil does not ship says so itself (`on`)."""
    found = _SHIPPED.get(name)
    return str(getattr(SCHEMES[name], "on", RING)) if found is None else found
