"""How a node reads a subscription: what was acknowledged, who gets which shard, what is sent again."""
