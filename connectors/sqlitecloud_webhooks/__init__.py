"""SQLite Cloud webhooks connector: an HTTP server to which every row change is posted."""
