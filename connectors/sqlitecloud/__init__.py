"""SQLite Cloud connector: folds the tables of a database from pub/sub notifications and snapshots."""
