"""Landed frames to change rows, in Spark."""
