"""One thread: what the tests compare bit for bit must not depend on the number of cores.

And no width of a terminal: sentences are compared as they are.
"""

import os
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))  # for ring_helpers
torch.set_num_threads(1)
os.environ.pop("COLUMNS", None)
