"""Experiments: a recipe, assembled and run."""

from basil.experiment.experiment import Experiment, Interrupted
from basil.experiment.machine import Machine, Own, choose_device
from basil.experiment.part import Part
from basil.experiment.resumption import others_code, recipe_of, resume, take_up

__all__ = [
    "Experiment",
    "Interrupted",
    "Machine",
    "Own",
    "Part",
    "choose_device",
    "others_code",
    "recipe_of",
    "resume",
    "take_up",
]
