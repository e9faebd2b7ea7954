"""The paper's figures and tables, run again and held against what the paper says."""

from basil.reproduce.figure_runs import FigureRuns, lacking_data, plan_figure, reproduction
from basil.reproduce.numbers import number_verdicts

__all__ = ["FigureRuns", "lacking_data", "number_verdicts", "plan_figure", "reproduction"]
