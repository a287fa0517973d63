"""Wire formats that more than one connector speaks. Pure: no sockets, no Spark."""
