"""Messages of any SBE schema in Spark."""
