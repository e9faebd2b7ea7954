"""What a scheme's rule looks at in models, stated beside it (`states(looks_at=...)`).

Who combines models by their lengths and distances does the same with all of them rotated; who does
so coordinate by coordinate, with some coordinates only.  Nothing stated: it may look at anything.
"""

from collections.abc import Callable
from typing import Any

DISTANCES, COORDINATES, ANYTHING = "distances", "coordinates", "anything"


def looks_at(*functions: Callable[..., Any]) -> str:
    """What several of them look at, one after the other."""
    found = {getattr(function, "looks_at", ANYTHING) for function in functions}
    if found <= {DISTANCES}:
        return DISTANCES
    return COORDINATES if found <= {DISTANCES, COORDINATES} else ANYTHING
