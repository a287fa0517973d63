"""One epoch: a client's fetches into bronze, acknowledged once committed."""
