"""Data sets, how they come to this machine, and how they are dealt to the nodes.

`load` gives a `Dataset` of plain numpy arrays from files that are here already; `get` fetches
those files; a partition from `PARTITIONS` deals the training samples to the nodes.  Nothing here
knows about models, rings or attacks.
"""

from basil.data.checks import checked
from basil.data.convert import from_samples
from basil.data.datasets import DATASETS, load
from basil.data.fetch import get
from basil.data.own import BROUGHT, OWN
from basil.data.partition import PARTITIONS
from basil.data.samples import Dataset, Samples
from basil.data.sources import present, where
from basil.data.synthetic import least_squares_optimum

__all__ = [
    "BROUGHT",
    "DATASETS",
    "OWN",
    "PARTITIONS",
    "Dataset",
    "Samples",
    "checked",
    "from_samples",
    "get",
    "least_squares_optimum",
    "load",
    "present",
    "where",
]
