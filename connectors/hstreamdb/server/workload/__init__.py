"""Change records of tables that keep changing."""
