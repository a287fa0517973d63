"""Settings, their files, and the error tree: what every other package may import."""
