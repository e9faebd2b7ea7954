"""Experiments: a recipe, assembled and run."""

from basil.experiment.experiment import Experiment, Interrupted, resume, take_up
from basil.experiment.machine import Machine, Own, choose_device
from basil.experiment.part import Part

__all__ = [
    "Experiment",
    "Interrupted",
    "Machine",
    "Own",
    "Part",
    "choose_device",
    "resume",
    "take_up",
]
