"""AUTO CDC for Delta tables: `apply_changes`."""
