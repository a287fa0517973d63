"""The toy's source."""
