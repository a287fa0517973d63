"""Logs and tables below the build: what a commit records of its cut, which companion rows count, and who may write."""
