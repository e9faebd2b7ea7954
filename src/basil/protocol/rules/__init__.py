"""Selection rules: from which of the stored models a node goes on."""

from collections.abc import Callable

from basil.protocol.rules.contract import Candidates, Choice, Rule, RuleGenerator
from basil.protocol.rules.freshest import freshest
from basil.protocol.rules.gauntlet import gauntlet
from basil.protocol.rules.lowest import lowest_loss, newest
from basil.protocol.rules.trust import trust
from basil.table import Table

__all__ = ["RULES", "Candidates", "Choice", "Rule", "RuleGenerator", "lowest_loss"]

RULES: Table[Callable[..., RuleGenerator]] = Table(
    "rule",
    {
        "lowest-loss": lowest_loss,
        "newest": newest,
        "freshest": freshest,
        "trust": trust,
        "gauntlet": gauntlet,
    },
    takes=("candidates",),
)
