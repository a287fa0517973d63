"""A second reader of landed packets, and a subscription of its own to the source: both verify silver."""
