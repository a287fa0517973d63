"""Filter expressions: parsed, bound to a table's columns, and evaluated."""
