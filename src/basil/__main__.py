"""`python -m basil` is `basil`."""

import sys

from basil.cli import main

sys.exit(main())
