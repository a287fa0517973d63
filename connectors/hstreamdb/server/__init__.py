"""A cluster of HStreamDB nodes in one process: a true source for tests, examples and trials."""
