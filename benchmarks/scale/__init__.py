"""Networks at the size people use, beside PyHessian: python -m benchmarks --only scale:..."""
