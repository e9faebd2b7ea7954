"""Anonymous cyclic data sharing: Algorithm 2, and what holds it up when nodes fail or cheat."""
