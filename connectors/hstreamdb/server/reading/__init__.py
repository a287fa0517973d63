"""The reading of a subscription on one node: acknowledgements, assignment of shards, redelivery."""
