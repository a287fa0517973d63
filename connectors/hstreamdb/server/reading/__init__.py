"""The reading of a subscription on one node: acknowledgements, assignment of shards, redelivery.

Its rules are in PROTOCOL.md, under "Our cluster".
"""
