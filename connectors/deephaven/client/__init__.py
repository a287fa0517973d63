"""A client with a thread that reads, its listeners and the table they keep."""
