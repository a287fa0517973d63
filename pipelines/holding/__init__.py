"""Frames that a table could not take, and what became of them."""
