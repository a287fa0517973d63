"""The engine: frames land in bronze, cuts of whole updates are planned and applied to silver."""
