"""SQLite Cloud pub/sub: SCSP frames, change notifications, and a server over SQLite files."""
