"""Messages of a feed without a socket: where they begin and end, and which belong to a table."""
