"""What the nodes of a cluster share, in memory: streams, logs of shards, subscriptions, checkpoints and readers."""
