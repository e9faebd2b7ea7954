"""Experiments: a recipe, assembled and run."""

from basil.experiment.experiment import Experiment, Interrupted, resume, take_up
from basil.experiment.machine import Machine, Own, choose_device

__all__ = ["Experiment", "Interrupted", "Machine", "Own", "choose_device", "resume", "take_up"]
