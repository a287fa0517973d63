"""A connector of the smallest kind: its source has numbered lines. Tests copy it to a package of its own, ``toy``."""
