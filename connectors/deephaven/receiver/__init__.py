"""One epoch: the frames of a connection, into bronze."""
