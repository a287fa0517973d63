"""State that the nodes share, in memory: streams, logs of shards, subscriptions, checkpoints and readers."""
