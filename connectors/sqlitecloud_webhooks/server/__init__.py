"""A source that posts signed webhooks, as the vendor does."""
