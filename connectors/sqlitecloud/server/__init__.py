"""A server over SQLite that speaks SCSP, with publish and subscribe."""
