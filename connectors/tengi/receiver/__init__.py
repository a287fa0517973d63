"""One epoch: lands a link's packets in bronze, each table's in its source's order, and acknowledges committed ones."""
