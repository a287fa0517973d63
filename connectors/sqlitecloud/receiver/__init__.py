"""One epoch: snapshots and notifications, into bronze."""
