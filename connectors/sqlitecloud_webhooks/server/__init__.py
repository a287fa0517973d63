"""A source that posts signed webhooks."""
