"""A market that sends SBE messages."""
