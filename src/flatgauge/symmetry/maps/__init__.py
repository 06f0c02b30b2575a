"""Finite maps of parameters that keep a network's function, each with its own check."""
