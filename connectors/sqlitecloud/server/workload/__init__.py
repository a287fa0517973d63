"""Random statements that keep the server's tables changing."""
