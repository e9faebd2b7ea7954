"""Schemes as generators of requests, one node each.  Start with `basil.py`: it is Algorithm 1."""
