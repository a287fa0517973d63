"""One epoch: the messages of a connection or a file, into bronze."""
