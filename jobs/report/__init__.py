"""A page about one feed, for a browser: what the store records of it, in figures and charts."""
