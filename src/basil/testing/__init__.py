"""What Basil expects of an attack, a rule, a scheme, …: run these over your own.

>>> from basil.testing import check_attack
>>> check_attack("my_pkg.attacks:overshoot")             # doctest: +SKIP

Each takes the function itself or the name that a recipe would use, and its options by keyword.  It
returns if all is well; otherwise an AssertionError says what is not.  Basil's own tests run them
over Basil's own tables.
"""

from basil.testing.attacks import check_attack, told, view
from basil.testing.pieces import (
    check_dataset,
    check_graph,
    check_loss,
    check_metric,
    check_model,
    check_optimizer,
    check_partition,
    check_schedule,
)
from basil.testing.protocols import answered, check_rule, check_scheme

__all__ = [
    "answered",
    "check_attack",
    "check_dataset",
    "check_graph",
    "check_loss",
    "check_metric",
    "check_model",
    "check_optimizer",
    "check_partition",
    "check_rule",
    "check_schedule",
    "check_scheme",
    "told",
    "view",
]
