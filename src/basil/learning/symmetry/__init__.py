"""Changes of a network's weights that change no output: what there are, and one form for all."""

from basil.learning.symmetry.canonical import Canonical
from basil.learning.symmetry.find import find
from basil.learning.symmetry.parts import Pair, Part, Symmetries, Units

__all__ = ["Canonical", "Pair", "Part", "Symmetries", "Units", "find"]
