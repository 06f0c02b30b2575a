"""Metrics on parameter space, and the quotient by its symmetries."""
