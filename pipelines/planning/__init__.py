"""Which updates the next cut applies."""
