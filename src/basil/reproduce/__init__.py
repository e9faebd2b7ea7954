"""The paper's figures and tables, run again and held against what the paper says."""

from basil.reproduce.numbers import number_verdicts
from basil.reproduce.plan import Plan, lacking_data, plan_figure, reproduction

__all__ = ["Plan", "lacking_data", "number_verdicts", "plan_figure", "reproduction"]
