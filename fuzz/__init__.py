"""Random networks, data and losses, measured against dense float64 references."""
