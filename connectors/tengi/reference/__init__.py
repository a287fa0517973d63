"""What silver is verified by: a second reader of landed packets, and a subscription of its own to the source."""
