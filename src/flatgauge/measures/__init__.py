"""The measures: one file each, found by the registry."""
