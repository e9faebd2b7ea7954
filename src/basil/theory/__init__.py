"""The paper's propositions as functions: how safe a ring is, and what it costs.

`resilience` (Prop. 2) and `groups` (Prop. 5) have failure probabilities: bounds, exact, simulated;
`cost` and `parallel` have messages, bytes and seconds (Prop. 1, 3, 4, App. G-B).  Each docstring
names its formula and, where the paper errs, the erratum.  `plan` puts them together for one
`setting`.  `robustness` bounds what Byzantine nodes can cost where data are unlike, which the
paper leaves open; `worst_case` measures how near the bound is.  Nothing here needs a model or data:

    >>> smallest_connectivity(100, 33, failure=1e-3)
    10
"""

from basil.theory.cost import (
    TABLE_III,
    TABLE_III_UBAR_SCORED,
    RoundCost,
    Scoring,
    Timing,
    acds_bits,
    acds_time,
    basil_time,
    basil_time_bound,
    basil_turns,
    round_cost,
    ubar_time,
)
from basil.theory.groups import (
    group_failure_bound,
    group_failure_exact,
    one_group_failure,
    smallest_group_connectivity,
)
from basil.theory.parallel import (
    Stages,
    aggregation_depth,
    basil_plus_path,
    basil_plus_stages,
    basil_plus_time,
    basil_plus_time_printed,
)
from basil.theory.planner import GroupChoice, Plan, Risk, failure_curve, make_plan
from basil.theory.resilience import (
    Estimate,
    disconnected,
    failure_bound,
    failure_exact,
    failure_simulated,
    smallest_connectivity,
)
from basil.theory.robustness import (
    Losses,
    breakdown,
    equal_data_gap,
    evenly_spread,
    gradient_bound,
    loss_slack,
    own_models_error,
    ring_error,
    server_breakdown,
    server_gap,
    worst_error,
)
from basil.theory.setting import PAPER_TIMES, PartTimes, Setting, Sharing
from basil.theory.worst_case import worst_case_error

__all__ = [
    "PAPER_TIMES",
    "TABLE_III",
    "TABLE_III_UBAR_SCORED",
    "Estimate",
    "GroupChoice",
    "Losses",
    "PartTimes",
    "Plan",
    "Risk",
    "RoundCost",
    "Scoring",
    "Setting",
    "Sharing",
    "Stages",
    "Timing",
    "acds_bits",
    "acds_time",
    "aggregation_depth",
    "basil_plus_path",
    "basil_plus_stages",
    "basil_plus_time",
    "basil_plus_time_printed",
    "basil_time",
    "basil_time_bound",
    "basil_turns",
    "breakdown",
    "disconnected",
    "equal_data_gap",
    "evenly_spread",
    "failure_bound",
    "failure_curve",
    "failure_exact",
    "failure_simulated",
    "gradient_bound",
    "group_failure_bound",
    "group_failure_exact",
    "loss_slack",
    "make_plan",
    "one_group_failure",
    "own_models_error",
    "ring_error",
    "round_cost",
    "server_breakdown",
    "server_gap",
    "smallest_connectivity",
    "smallest_group_connectivity",
    "ubar_time",
    "worst_case_error",
    "worst_error",
]
