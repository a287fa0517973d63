"""The connector for SQLite Cloud's webhooks: an HTTP server to which every change of a row is posted."""
