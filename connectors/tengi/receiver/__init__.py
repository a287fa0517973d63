"""One epoch: a link's packets into bronze, each table's in its source's order, acknowledged once committed."""
