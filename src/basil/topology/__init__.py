"""Who talks to whom."""

from basil.topology.ring import Ring, agree_on_order

__all__ = ["Ring", "agree_on_order"]
