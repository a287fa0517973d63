"""Silver for readers: views, time travel, status."""
