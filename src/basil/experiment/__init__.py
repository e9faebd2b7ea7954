"""Experiments: a recipe is set up, and the setup is run."""

from basil.experiment.build import set_up
from basil.experiment.foreground import run_in_foreground, stopped_by
from basil.experiment.local_node import LocalNode, local_node
from basil.experiment.machine import Custom, Machine, choose_device
from basil.experiment.resumption import others_code, recipe_of, resume, take_up
from basil.experiment.setup import Setup
from basil.experiment.simulation import Interrupted, Simulation
from basil.record.recorder import Hooks

__all__ = [
    "Custom",
    "Hooks",
    "Interrupted",
    "LocalNode",
    "Machine",
    "Setup",
    "Simulation",
    "choose_device",
    "local_node",
    "others_code",
    "recipe_of",
    "resume",
    "run_in_foreground",
    "set_up",
    "stopped_by",
    "take_up",
]
