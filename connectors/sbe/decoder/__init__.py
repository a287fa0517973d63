"""Landed messages to change rows, in Spark."""
