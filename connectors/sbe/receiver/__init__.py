"""One epoch: lands the messages of a connection or a file in bronze."""
