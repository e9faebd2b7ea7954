"""What a node says while it runs; `run/logs.py` makes lines of it."""

import logging
from typing import Any

LOG = logging.getLogger("basil.peer")


def say(event: str, level: int = logging.INFO, **facts: Any) -> None:
    """One event with its facts: `say("turn", round=3, selected=5)`."""
    LOG.log(level, event, extra={"facts": facts})
