"""The wire without a channel: messages, records, batches, frames, shards and statuses."""
