"""Dinh et al. (2017), "Sharp minima can generalize for deep nets"."""
