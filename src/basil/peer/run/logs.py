"""What a node says while it runs: a line for people, or a JSON object in a line for machines."""

import json
import logging
import sys
from datetime import UTC, datetime

from basil.peer.link.say import LOG


class _Lines(logging.Formatter):
    def __init__(self, node: int, as_json: bool) -> None:
        super().__init__()
        self._node, self._json = node, as_json

    def format(self, record: logging.LogRecord) -> str:
        facts = getattr(record, "facts", {})
        # For the reader only: nothing depends on this clock.
        now = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        event = record.getMessage()
        if record.exc_info:
            facts = {**facts, "error": self.formatException(record.exc_info)}
        if self._json:
            line = {"time": now, "level": record.levelname.lower(), "node": self._node}
            return json.dumps({**line, "event": event, **facts}, default=str)
        told = " ".join(f"{key}={value}" for key, value in facts.items() if value is not None)
        return f"{now[11:23]} node {self._node} {event} {told}".rstrip()


def set_up(node: int, as_json: bool) -> None:
    """To standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(node, as_json))
    LOG.handlers, LOG.propagate = [handler], False
    LOG.setLevel(logging.INFO)
