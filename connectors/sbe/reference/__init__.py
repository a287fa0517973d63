"""The second reader of landed messages."""
