"""Simple Binary Encoding, driven by the schema: read XML, decode, encode."""
