"""One thread: what the tests compare bit for bit must not depend on the number of cores."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))  # for ring_helpers
torch.set_num_threads(1)
