"""SBE messages decoded; schemas validated and compared."""
