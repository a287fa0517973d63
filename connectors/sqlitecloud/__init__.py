"""Folds the tables of a SQLite Cloud database, from its pub/sub notifications and snapshots."""
