"""What Byzantine nodes do: the attacks (`table.py` names them all), and who carries them out
(`adversary.py`)."""

from basil.attack.adversary import ArmedAttack, Knowledge, adversary, lies_in
from basil.attack.data import DataAttack, poisoned
from basil.attack.entries import ATTACKS, armed, options_of
from basil.attack.view import Attack, View, declares

__all__ = [
    "ATTACKS",
    "ArmedAttack",
    "Attack",
    "DataAttack",
    "Knowledge",
    "View",
    "adversary",
    "armed",
    "declares",
    "lies_in",
    "options_of",
    "poisoned",
]
