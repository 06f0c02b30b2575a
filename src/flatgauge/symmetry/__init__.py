"""Rescalings that leave a network's function unchanged: found, applied, checked."""
