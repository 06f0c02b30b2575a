"""Whether a network is piecewise affine in its parameters."""
