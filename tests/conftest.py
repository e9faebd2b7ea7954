"""One thread: what the tests compare bit for bit must not depend on the number of cores.

And no width of a terminal: sentences are compared as they are.
"""

import os
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))  # for what test files share
torch.set_num_threads(1)
os.environ.pop("COLUMNS", None)
os.unsetenv("COLUMNS")  # readline sets it for child processes, and os.environ does not know
