"""A server that sends the messages of a simulated market over TCP."""
