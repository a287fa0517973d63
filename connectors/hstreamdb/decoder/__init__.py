"""Landed frames to change rows, in Spark: by columns where batches allow it, else record by record."""
