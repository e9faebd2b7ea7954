"""Real peers: the protocols' own text between machines that do not trust each other."""
