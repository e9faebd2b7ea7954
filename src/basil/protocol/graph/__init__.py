"""Schemes on a graph: a round in which all nodes exchange models, and each combines what it got."""
