"""One node's run: the protocol's requests answered by a network and a clock; what it leaves."""
