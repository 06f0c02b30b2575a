"""Tsuzuku, Sato and Sugiyama 2019: normalized flat minima."""
