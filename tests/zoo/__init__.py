"""Real networks, each tried with everything that the package does to one."""
