"""What the server publishes: captured changes, and who receives them."""
