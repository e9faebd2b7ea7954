"""Real peers: the protocols' own text between machines that do not trust each other."""

import os

# Before anything imports gRPC: what strangers do must not fill our logs.  Refusals are counted.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
