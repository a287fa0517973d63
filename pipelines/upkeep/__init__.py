"""Maintenance, retention and rebuilds."""
