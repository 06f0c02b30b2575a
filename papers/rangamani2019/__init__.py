"""Rangamani et al. 2019: A Scale Invariant Flatness Measure for Deep Network Minima."""
