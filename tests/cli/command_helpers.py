"""A ring that is done in a tenth of a second, and what the command answers."""

import json
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


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)
