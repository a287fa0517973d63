"""Column messages: the cells of rows, on the wire and as Arrow arrays."""
