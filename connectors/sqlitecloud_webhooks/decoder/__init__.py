"""Landed posts to change rows, in Spark."""
