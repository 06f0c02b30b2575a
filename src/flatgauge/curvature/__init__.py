"""Curvature as symmetric operators on named vectors."""
