"""Live tables: rows by row key, their updates, and views of them."""
