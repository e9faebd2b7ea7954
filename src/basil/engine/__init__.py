"""Engines answer the requests of protocols.  The simulator runs all nodes in one process."""
