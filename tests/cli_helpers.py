"""A recipe that is done in a tenth of a second, a figure of it, and what a command answers."""

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

TINY = """
[data]
dataset = "synthetic"
samples = 200

[ring]
nodes = 5
byzantine = 1
connectivity = 2

[scheme]
rounds = 4

[learning]
model = "softmax"
batch = 8
rate = 0.3

[attack]
name = "gaussian"

[record]
every = 1
"""

FIGURE = (
    TINY
    + """
[figure]
title = "Two schemes"
claim = "Basil learns, R-plain does not."
quick.scheme.rounds = 3

[[figure.panel]]
title = "Gaussian attack"

[[figure.panel]]
title = "No attack"
set.attack.name = "none"

[[figure.curve]]
id = "basil"
name = "Basil"

[[figure.curve]]
id = "again"                        # the same run under another name
name = "Basil again"
panels = ["a"]

[[figure.curve]]
id = "r-plain"
set.scheme.name = "r-plain"

[[figure.expect]]
panels = ["a", "b"]
curve = "basil"
at_least = 0

[[figure.expect]]
panels = ["a"]
curve = "basil"
than = "again"
at_least = 1
note = "They are the same."
"""
)


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The system refuses to make a file larger than this."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
