"""Wire formats shared by several connectors. Pure: no sockets, no Spark."""
