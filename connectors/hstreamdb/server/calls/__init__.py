"""The calls of the service, one module for each part of it."""
