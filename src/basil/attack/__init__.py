"""What Byzantine nodes do: the attacks (`model.py`), and who carries them out (`adversary.py`)."""

from basil.attack.adversary import adversary
from basil.attack.model import ATTACKS
from basil.attack.view import Attack, View, declares

__all__ = ["ATTACKS", "Attack", "View", "adversary", "declares"]
