"""Spark transforms over change rows: fold, re-key, merge. They know no protocol."""
