"""Iterative and random algorithms over any symmetric operator."""
