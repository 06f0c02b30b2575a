"""Ways to multiply a vector by the Hessian of one batch; one route a file."""
