"""Benchmarks against one gradient and against other packages, interleaved in one run."""
