"""Exact and estimated diagonals of curvatures, and sums of squared gradients of samples."""
